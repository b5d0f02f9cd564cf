import { APICallError } from '@ai-sdk/provider';
import { optional } from '../../domain/kernel/optional.ts';
import type { ModelOutcome } from '../../domain/turn/model-outcome.ts';
import { NO_USAGE } from '../../domain/turn/usage.ts';
import { AddressRefusedError } from '../../lib/guarded-lookup.ts';
import { AnswerTooLargeError } from './client.ts';
import { retryAfterMs } from './retry-after.ts';
import { AnswerBrokenOffError, AnswerTooLongError } from './stream.ts';
import { SILENT } from './watchdog.ts';

export type Failure = Extract<ModelOutcome, { kind: 'failed' }>;

/** The description of a failure: our own words only. A provider's message may repeat the key or the whole request. */
interface Meaning {
  readonly code: string;
  readonly message: string;
  readonly retry: boolean;
  readonly contextOverflow?: true;
  /** It came as an answer, which the provider may bill. */
  readonly mayBeBilled?: true;
}

const terminal = (code: string, message: string): Meaning => ({ code, message, retry: false });
const passing = (code: string, message: string): Meaning => ({ code, message, retry: true });

const REDIRECTED = terminal(
  'model_address_redirects',
  'The provider answered with a redirect, which is not followed. Set baseUrl to the final address.',
);
const REFUSED_ADDRESS = terminal(
  'model_address_refused',
  'The address of the provider leads to a host that this Host does not call. Choose another baseUrl.',
);
const OVERFLOW: Meaning = {
  code: 'model_context_overflow',
  message: 'The conversation is longer than the context of the model. Choose a model with a larger one.',
  retry: false,
  contextOverflow: true,
};
const NO_FUNDS = terminal(
  'model_quota_exhausted',
  "The account at the provider has no quota or credit left. Renew it there, or store another account's key.",
);
const REFUSED = terminal('model_refused', 'The provider refused the conversation by its content rules.');
const TOO_LARGE = terminal('model_answer_too_large', 'The answer of the model is too large to be stored.');
const UNREADABLE: Meaning = {
  ...passing('model_answer_invalid', 'The answer of the provider was cut off or is not in its format.'),
  mayBeBilled: true,
};

/** By status; other statuses of a class are treated as the class's last line. */
const BY_STATUS: Readonly<Record<number, Meaning>> = {
  401: terminal('model_credential_invalid', 'The provider refused the credential. Store a valid one for the provider.'),
  403: terminal('model_forbidden', 'The credential may not use this model or API. Check its rights at the provider.'),
  404: terminal('model_not_found', 'The provider does not know the model, or baseUrl is wrong. Check both.'),
  408: passing('model_timeout', 'The provider did not answer in time.'),
  409: passing('model_provider_error', 'The provider had a conflict.'),
  413: terminal('model_request_too_large', 'The request is larger than the provider takes.'),
  425: passing('model_provider_error', 'The provider was not ready.'),
  429: passing('model_rate_limited', 'The provider limits the rate of the credential.'),
  402: NO_FUNDS,
  503: passing('model_overloaded', 'The provider is overloaded.'),
  504: passing('model_timeout', 'The provider did not answer in time.'),
  529: passing('model_overloaded', 'The provider is overloaded.'),
};

const SILENCE = passing(
  'model_timeout',
  'The provider was silent for too long: it did not begin its answer, or stopped in the middle of it.',
);
const BROKEN_OFF: Meaning = {
  ...passing('model_provider_error', 'The provider broke off the answer.'),
  mayBeBilled: true,
};

export interface FailedCall {
  readonly signal: AbortSignal;
  readonly nowMs: number;
  /** A part of the answer had arrived: the provider may bill it. */
  readonly hasBegun?: boolean;
}

/** The outcome of a call that threw, whatever was thrown. */
export function failureOf(error: unknown, { signal, nowMs, hasBegun = false }: FailedCall): Failure {
  if (signal.aborted) return failed(terminal('cancelled', 'The call was cancelled.'));
  const known = meaningOf(error);
  const meaning: Meaning = hasBegun ? { ...known, mayBeBilled: true } : known;
  const failure = failed(meaning);
  if (!meaning.retry) return failure;
  if (APICallError.isInstance(error))
    return { ...failure, retryAfterMs: retryAfterMs(error.responseHeaders ?? {}, bodyOf(error), nowMs) };
  if (!(error instanceof AnswerBrokenOffError)) return failure;
  return { ...failure, retryAfterMs: retryAfterMs({}, textOf(error.report), nowMs) };
}

/** The body as text, its beginning only; the library also puts the parsed one there. */
function bodyOf({ responseBody }: { readonly responseBody?: unknown }): string {
  return typeof responseBody === 'string' ? responseBody.slice(0, REPORT_CHARS_MAX) : textOf(responseBody ?? '');
}

function textOf(report: unknown): string {
  return (JSON.stringify(report) ?? '').slice(0, REPORT_CHARS_MAX);
}

export function failed({ code, message, retry, contextOverflow, mayBeBilled }: Meaning, usage = NO_USAGE): Failure {
  const more = {
    ...optional({ contextOverflow, mayBeBilled }),
  };
  return { kind: 'failed', error: { code, message }, retryAfterMs: retry ? 0 : null, usage, ...more };
}

function meaningOf(error: unknown): Meaning {
  if (error === SILENT) return SILENCE;
  if (error instanceof AnswerTooLongError) return TOO_LARGE;
  if (error instanceof AnswerBrokenOffError) return error.report === undefined ? UNREADABLE : ofFrame(error.report);
  const causes = chainOf(error);
  if (causes.some((cause) => cause instanceof AddressRefusedError)) return REFUSED_ADDRESS;
  if (causes.some((cause) => cause instanceof AnswerTooLargeError)) return TOO_LARGE;
  const codes = causes.map(codeOf);
  if (APICallError.isInstance(error) && error.statusCode !== undefined) {
    const { statusCode } = error;
    // A failure may come in the form of an answer: reported as success, without the members that the library looks for.
    // Its text may be the model's, so only the words count.
    const { words } = reportOf(bodyOf(error));
    const told = statusCode < 300 ? ofWords({ words, message: '' }) : ofAnswer(statusCode, bodyOf(error));
    if (told !== null) return told;
  }
  if (codes.some((code) => TIMEOUTS.has(code))) return passing('model_timeout', 'The provider did not answer in time.');
  const network = codes.find((code) => /^[A-Z][A-Z0-9_]*$/.test(code) && !OF_THE_ANSWER.test(code));
  if (network === undefined) return UNREADABLE;
  return passing(
    'model_unreachable',
    `The provider cannot be reached, or closed the connection (${network}). Check baseUrl if it is your own.`,
  );
}

/** By what a provider sends in the middle of its stream. */
function ofFrame(report: unknown): Meaning {
  // Servers that copy OpenAI have the status as a code.
  const status = Number(member(report, 'statusCode') ?? member(report, 'code'));
  return ofWords(reportOf(textOf(report))) ?? BY_STATUS[status] ?? BROKEN_OFF;
}

/**
 * The parser of HTTP, the decoders, and Node's words for wrong arguments. All other codes are the network's: name
 * resolution, connection and encryption have too many to list, and a certificate's follow no pattern.
 */
const OF_THE_ANSWER = /^(HPE_|Z_|ZSTD_|ERR_(?!SSL|TLS))/;

const TIMEOUTS = new Set(['UND_ERR_CONNECT_TIMEOUT', 'UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT', 'ETIMEDOUT']);

function ofAnswer(status: number, body: string): Meaning {
  if (status < 400) return REDIRECTED;
  const report = reportOf(body);
  const told = status < 500 ? ofWords(report) : null;
  if (told !== null) return told;
  const { words } = report;
  const known = BY_STATUS[status];
  if (known !== undefined) return known;
  if (status >= 500) return passing('model_provider_error', `The provider failed (HTTP ${status}).`);
  const said = [...new Set(words)].filter((word) => KNOWN_WORDS.has(word)).join(', ');
  return terminal(
    'model_request_invalid',
    `The provider refused the request (HTTP ${status}${said === '' ? '' : `, ${said}`}). Check the name of the model, its settings, and the schemas of tools and output.`,
  );
}

interface Report {
  readonly words: readonly string[];
  readonly message: string;
}

/** What an error body says in words that mean the same whatever its status; null: none of them. */
function ofWords({ words, message }: Report): Meaning | null {
  if (isOverflow(words, message)) return OVERFLOW;
  if (words.some((word) => ['insufficient_quota', 'billing_not_active'].includes(word))) return NO_FUNDS;
  if (words.some((word) => REFUSALS.has(word))) return REFUSED;
  // Anthropic has no word for it, and answers with 400.
  if (/^your credit balance is too low/i.test(message)) return NO_FUNDS;
  // Google answers a wrong key with 400.
  if (words.includes('API_KEY_INVALID')) return BY_STATUS[401] ?? null;
  if (words.includes('overloaded_error')) return BY_STATUS[529] ?? null;
  if (words.includes('rate_limit_exceeded')) return BY_STATUS[429] ?? null;
  return words.includes('server_error') ? passing('model_provider_error', 'The provider failed.') : null;
}

/** What OpenAI, and Azure, say of a prompt that they do not show to the model. */
const REFUSALS: ReadonlySet<string> = new Set(['invalid_prompt', 'content_policy_violation', 'content_filter']);

/** Words of error bodies that are repeated: those of the providers' documents, and nothing that a provider invents. */
const KNOWN_WORDS: ReadonlySet<string> = new Set([
  'invalid_request_error',
  'invalid_value',
  'invalid_type',
  'invalid_function_parameters',
  'invalid_json_schema',
  'missing_required_parameter',
  'unknown_parameter',
  'unsupported_parameter',
  'unsupported_value',
  'unsupported_model',
  'INVALID_ARGUMENT',
  'FAILED_PRECONDITION',
  'UNIMPLEMENTED',
]);

/**
 * A context that is too long is reported by OpenAI, and most that copy it, with a code; by the others in words only:
 * Anthropic "prompt is too long: n tokens > m maximum", Google "The input token count (n) exceeds the maximum number of
 * tokens allowed (m)", vLLM "maximum context length is m tokens", llama.cpp "exceeds the available context size".
 */
function isOverflow(words: readonly string[], message: string): boolean {
  if (words.some((word) => ['context_length_exceeded', 'exceed_context_size_error'].includes(word))) return true;
  return /prompt is too long|input length and `?max_tokens`? exceed context|token count.{0,40}exceeds the maximum|maximum context length|exceeds? the (available |model'?s? )?context (size|length|window)|context window exceed/i.test(
    message,
  );
}

const REPORT_CHARS_MAX = 20_000;

/** Type, code, status and reason of an error body, and its message, in the forms of all providers. */
function reportOf(body: string): Report {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body);
  } catch {
    return { words: [], message: body };
  }
  const outer = Array.isArray(parsed) ? member(parsed, '0') : parsed;
  // OpenAI's `response.failed` has it one level below.
  const error = member(outer, 'error') ?? member(member(outer, 'response'), 'error') ?? outer;
  const details = member(error, 'details');
  const parts = [error, ...(Array.isArray(details) ? details.slice(0, 20) : [])];
  const words = parts.flatMap((part) => ['type', 'code', 'status', 'reason'].map((name) => member(part, name)));
  const message = typeof error === 'string' ? error : member(error, 'message');
  return {
    words: words.filter((word) => typeof word === 'string'),
    message: typeof message === 'string' ? message : '',
  };
}

function member(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  return Object.hasOwn(value, name) ? Reflect.get(value, name) : undefined;
}

const CHAIN_MAX = 10;

function chainOf(error: unknown): unknown[] {
  const chain: unknown[] = [];
  for (let at = error; at instanceof Error && chain.length < CHAIN_MAX; at = at.cause) {
    chain.push(at);
    if (at instanceof AggregateError) chain.push(...at.errors.slice(0, CHAIN_MAX));
  }
  return chain;
}

function codeOf(error: unknown): string {
  const code = member(error, 'code');
  return typeof code === 'string' ? code : '';
}
