import {
  isCallToolResult,
  isInputRequiredResult,
  ProtocolError,
  SdkError,
  SdkErrorCode,
} from '@modelcontextprotocol/client';
import type { Progress } from '@modelcontextprotocol/client';
import { delay } from '../../lib/backoff.ts';
import { resultOf } from './content.ts';
import type { Access } from './credentials.ts';
import type { Elicit, Session } from './exchange.ts';
import { failed, outcomeBefore, outcomeOf } from './failures.ts';
import { LegError } from './leg.ts';
import type { Leg } from './leg.ts';
import { cut, LIMITS } from './limits.ts';
import type { McpCall, McpCallOptions, McpOutcome, McpProgress, McpTool, McpTools } from './port.ts';
import { elicitResultOf, QuestionError, questionOf, Round } from './questions.ts';
import type { Opened, Sessions, Target } from './sessions.ts';
import type { Until } from './until.ts';

export interface CallDeps {
  readonly sessions: Sessions;
  /** @throws LegError */
  readonly listing: (target: Target, isNew: boolean) => Promise<{ readonly listing: McpTools }>;
  /** What still runs when the outcome is known. */
  readonly closed: (closing: Promise<void>) => void;
}

export interface CallInput {
  readonly call: McpCall;
  readonly options: McpCallOptions;
  readonly until: Until;
  readonly target: Target;
  readonly access: Access;
}

/** A server that says "later" without a question is called again after this, ms, at most as often. */
const LATER_MS = 1_000;
const LATER_MAX = 8;
const PROGRESS_MS = 100;
const PROGRESS_CHARS_MAX = 500;
const URL_ELICITATION_REQUIRED = -32_042;
const GONE = Symbol('the session is gone');

/**
 * Makes one call, or continues one with an answer.
 * @throws the signal's reason, and what the Host itself works with has thrown
 */
export async function runCall(deps: CallDeps, input: CallInput): Promise<McpOutcome> {
  const { call, access, until } = input;
  const resumed = resumedBy(call);
  if ('kind' in resumed) return resumed;
  try {
    const tool = await toolOf(deps, input);
    if (tool === null) return changed(call.tool);
    return await rounds(deps, input, { tool, ...resumed });
  } catch (error) {
    // What it was is settled by what was sent; here nothing was.
    if (until.signal.aborted || !(error instanceof LegError)) throw error;
    if (error.failure.kind === 'address_refused') {
      return failed('address_refused', `The server was not called: ${error.failure.reason}.`, false);
    }
    return outcomeBefore(error.failure, access.credential);
  }
}

interface Request {
  readonly tool: McpTool;
  readonly round: number;
  /** Of the request besides the tool's name and input: answers. */
  readonly params: Readonly<Record<string, unknown>>;
}

function resumedBy({ resume, tool }: McpCall): McpOutcome | Omit<Request, 'tool'> {
  if (resume === undefined) return { round: 1, params: {} };
  const round = Round.read(resume.state, tool);
  if (round === null) {
    return failed('invalid_state', 'The question that this answers is not known any more. Call the tool again.', false);
  }
  const next = round.answered(resume.answer);
  if (next instanceof Round) return { kind: 'input_required', question: next.question, state: next.text };
  if (next.isDeclined) {
    return failed('refused', 'The tool requires something that the person did not do. It was not called.', false);
  }
  return { round: round.number + 1, params: next.params };
}

/** The declaration that the caller saw; null: the server has another one now. An old listing is read again before that. */
async function toolOf(deps: CallDeps, { call, target }: CallInput): Promise<McpTool | null> {
  for (const isNew of [false, true]) {
    const { listing } = await deps.listing(target, isNew);
    const tool = listing.tools.find(({ tool: name }) => name === call.tool);
    if (tool !== undefined && (call.digest === null || tool.digest === call.digest)) return tool;
  }
  return null;
}

function changed(tool: string): McpOutcome {
  const message = `The server no longer declares the tool ${cut(tool, 64)} as it did. Nothing was called; use its current tools.`;
  return failed('changed', message, false);
}

async function rounds(deps: CallDeps, input: CallInput, request: Request): Promise<McpOutcome> {
  let { params } = request;
  for (let later = 0; ; later += 1) {
    const outcome = await inSession(deps, input, { ...request, params });
    if (!('requestState' in outcome)) return outcome;
    if (later === LATER_MAX) {
      return failed('timeout', 'The server has postponed the call too often. Call the tool again later.', false);
    }
    params = { requestState: outcome.requestState };
    await delay(LATER_MS, input.until.signal);
    input.until.signal.throwIfAborted();
  }
}

interface InSession extends Request {
  readonly session: Session;
  /** Whether this is not repeated with another session. */
  readonly isLast: boolean;
}

interface Later {
  readonly requestState: string;
}

/** With a new session, once, when the server no longer has the one that is known. */
async function inSession(deps: CallDeps, input: CallInput, request: Request): Promise<McpOutcome | Later> {
  for (let attempt = 1; ; attempt += 1) {
    const session = await input.until.race(deps.sessions.get(input.target));
    const letGo = deps.sessions.hold(input.target, session);
    const outcome = await exchanged(deps, input, { ...request, session, isLast: attempt > 1 }).finally(letGo);
    if (outcome !== GONE) return outcome;
    deps.sessions.forget(input.target, session);
  }
}

async function exchanged(
  deps: CallDeps,
  input: CallInput,
  request: InSession,
): Promise<McpOutcome | Later | typeof GONE> {
  const asked = new Asked(input);
  const opened = input.target.open(request.session, asked.elicit);
  try {
    return asked.noted(await sent(input, opened, request));
  } catch (error) {
    const { leg } = opened;
    if (input.until.signal.aborted) return aborted(input, leg.isCallSent);
    if (isGone(request.session, leg) && !request.isLast) return GONE;
    if (error instanceof QuestionError) return unasked(error);
    return (
      sentAwayBy(error, request) ??
      outcomeOf(error, leg, {
        credential: input.access.credential,
        isRepeatable: request.tool.readOnly || request.tool.idempotent,
      })
    );
  } finally {
    deps.closed(opened.close());
  }
}

/** Whether the server has forgotten its session: the call was not made. A 404 to a request with a session's id means that. */
function isGone(session: Session, { callStatus, isCallRefused }: Leg): boolean {
  if (session.era === 'modern') return false;
  if (callStatus === 404 && session.id !== null) return true;
  return isCallRefused && (callStatus === 400 || callStatus === 404);
}

async function sent(
  { call, options, until }: CallInput,
  { exchange }: Opened,
  { tool, round, params, session }: InSession,
): Promise<McpOutcome | Later> {
  const timing = { timeoutMs: until.leftMs + 1_000, signal: until.signal, isOld: true };
  await exchange.connect(session, timing);
  const { inputSchema } = tool;
  const answer: unknown = await exchange.request(
    exchange.client.callTool(
      { name: call.tool, arguments: { ...call.input }, ...params },
      {
        ...{ timeout: timing.timeoutMs, signal: until.signal, allowInputRequired: true },
        // Its input says which members go into headers; its output is checked here, with bounds.
        toolDefinition: { name: call.tool, inputSchema: { ...inputSchema, type: 'object' } },
        onprogress: throttled(options.onProgress),
      },
    ),
  );
  if (isCallToolResult(answer)) return resultOf(answer, tool.outputSchema);
  if (!isInputRequiredResult(answer)) throw new SdkError(SdkErrorCode.InvalidResult, 'neither a result nor a question');
  const { inputRequests = {}, requestState = null } = answer;
  if (Object.keys(inputRequests).length === 0) return { requestState: requestState ?? '' };
  const asked = Round.asked({ tool: call.tool, round, requestState }, inputRequests);
  return { kind: 'input_required', question: asked.question, state: asked.text };
}

/** A server of an older revision that lets a person do something first; the call has not begun. */
function sentAwayBy(error: unknown, { tool, round }: Request): McpOutcome | null {
  if (!(error instanceof ProtocolError) || error.code !== URL_ELICITATION_REQUIRED) return null;
  const { data } = error;
  const elicitations: unknown =
    typeof data === 'object' && data !== null && 'elicitations' in data ? data.elicitations : [];
  try {
    const asked = Round.sentAway(tool.tool, round, Array.isArray(elicitations) ? elicitations : []);
    return { kind: 'input_required', question: asked.question, state: asked.text };
  } catch (problem) {
    if (problem instanceof QuestionError) return unasked(problem);
    throw problem;
  }
}

function unasked({ message }: QuestionError): McpOutcome {
  return failed('invalid_answer', `The server ${message}. The call was not completed.`, false);
}

/** @throws the caller's reason */
function aborted({ options, until }: CallInput, isSent: boolean): McpOutcome {
  options.signal.throwIfAborted();
  if (!until.isOver) return failed('lost', 'The Host stopped during the call. It may have been carried out.', isSent);
  const doubt = isSent ? ' It may have been carried out: check that before calling it again.' : ' It was not called.';
  return failed('timeout', `The server did not answer in time.${doubt}`, isSent);
}

function throttled(onProgress: McpCallOptions['onProgress']) {
  let nextAt = 0;
  return ({ progress, total, message }: Progress): void => {
    if (onProgress === undefined || performance.now() < nextAt) return;
    nextAt = performance.now() + PROGRESS_MS;
    const text = typeof message === 'string' ? cut(message, PROGRESS_CHARS_MAX) : null;
    const told: McpProgress = { progress, total: total ?? null, message: text };
    try {
      onProgress(told);
    } catch {
      // A preview that fails is no reason to fail the call.
    }
  };
}

/** Questions of a server of an older revision, which wait within the call. */
class Asked {
  readonly #input: CallInput;
  #count = 0;
  #cancelled = 0;
  #last: Promise<unknown> = Promise.resolve();

  constructor(input: CallInput) {
    this.#input = input;
  }

  /** One after the other: an answer belongs to the question that a person has seen. */
  readonly elicit: Elicit = async (asked, signal) => {
    const answered = this.#last.then(async () => await this.#answered(asked, signal));
    this.#last = answered;
    return await answered;
  };

  async #answered({ params }: Parameters<Elicit>[0], signal: AbortSignal): ReturnType<Elicit> {
    const { onQuestion } = this.#input.options;
    this.#count += 1;
    if (onQuestion === undefined || this.#count > LIMITS.questionsPerRound) return this.#cancel();
    try {
      return elicitResultOf(await onQuestion(questionOf(params), AbortSignal.any([signal, this.#input.until.signal])));
    } catch {
      return this.#cancel();
    }
  }

  /** The result says that no person was asked. */
  noted(outcome: McpOutcome | Later): McpOutcome | Later {
    if (this.#cancelled === 0 || !('kind' in outcome) || outcome.kind !== 'result') return outcome;
    const text =
      'The tool asked the person a question while it ran. This server keeps its calls open meanwhile, so the question ' +
      'was cancelled. What follows is what the tool answered then.';
    return { ...outcome, isError: true, content: [{ type: 'text', text }, ...outcome.content] };
  }

  #cancel(): { action: 'cancel' } {
    this.#cancelled += 1;
    return { action: 'cancel' };
  }
}
