import type { ElicitResult } from '@modelcontextprotocol/client';
import { z } from 'zod';
import { schemaProblem } from '../../domain/kernel/json-schema.ts';
import { isLoopbackHost } from '../../lib/egress.ts';
import { cut, isDeeper, LIMITS } from './limits.ts';
import type { McpAnswer, McpQuestion } from './port.ts';

/** What a server sent cannot be put to a person; the message is for the model. */
export class QuestionError extends Error {}

const URL_CHARS_MAX = 2_000;

const elicitation = z.union([
  z.looseObject({ mode: z.literal('url'), message: z.string(), url: z.string().max(URL_CHARS_MAX) }),
  z.looseObject({
    mode: z.literal('form').optional(),
    message: z.string(),
    requestedSchema: z.looseObject({ type: z.literal('object') }),
  }),
]);

/** @throws QuestionError */
export function questionOf(params: unknown): McpQuestion {
  const parsed = elicitation.safeParse(params);
  if (!parsed.success) throw new QuestionError('asks a question that is not one of the protocol');
  const message = cut(parsed.data.message, LIMITS.questionCharsMax);
  if (parsed.data.mode === 'url') {
    if (!isForBrowsers(parsed.data.url)) throw new QuestionError('sends people to an address that is not https');
    return { mode: 'url', message, url: parsed.data.url };
  }
  const { requestedSchema: schema } = parsed.data;
  if (isDeeper(schema, LIMITS.schemaDepth) || JSON.stringify(schema).length > LIMITS.questionSchemaCharsMax) {
    throw new QuestionError('asks a question whose schema is too large');
  }
  if (schemaProblem(schema) !== null) throw new QuestionError('asks a question whose schema cannot be used');
  return { mode: 'form', message, schema };
}

function isForBrowsers(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { protocol, hostname, username, password } = new URL(url);
  if (username !== '' || password !== '') return false;
  return protocol === 'https:' || (protocol === 'http:' && isLoopbackHost(hostname));
}

const answerContent = z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.array(z.string())]));

/** What a server is sent; content that no form can have is left out, and the server asks again. */
export function elicitResultOf({ action, content }: McpAnswer): ElicitResult {
  const parsed = answerContent.safeParse(content);
  return action === 'accept' && parsed.success ? { action, content: parsed.data } : { action };
}

const requests = z.record(z.string(), z.looseObject({ method: z.string(), params: z.unknown() }));
const answer = z.object({
  action: z.enum(['accept', 'decline', 'cancel']),
  content: z.record(z.string(), z.unknown()).optional(),
});

const roundState = z.strictObject({
  v: z.literal(1),
  tool: z.string(),
  round: z.number().int(),
  /** Null: the call is repeated as it was, once what the questions ask for has been done. */
  requestState: z.string().nullable(),
  isRepeated: z.boolean(),
  /** Questions without an answer, in order; the first one is asked. */
  open: z.array(z.tuple([z.string(), z.unknown()])).min(1),
  answers: z.array(z.tuple([z.string(), answer])),
});

type RoundState = z.infer<typeof roundState>;

/** What a call ended in that has to be answered, one question at a time. */
export class Round {
  readonly #state: RoundState;

  private constructor(state: RoundState) {
    this.#state = state;
  }

  /** @throws QuestionError when the server asks what cannot be put to a person */
  static asked(
    { tool, round, requestState }: { tool: string; round: number; requestState: string | null },
    sent: unknown,
  ): Round {
    const parsed = requests.safeParse(sent);
    if (!parsed.success) throw new QuestionError('asks questions that are not of the protocol');
    const open = Object.entries(parsed.data).map(([key, { method, params }]): [string, unknown] => {
      if (method !== 'elicitation/create')
        throw new QuestionError(`asks for ${cut(method, 64)}, which this Host does not offer`);
      return [key, params];
    });
    return Round.#bounded({ v: 1, tool, round, requestState, isRepeated: false, open, answers: [] });
  }

  /** A server of an older revision has refused the call until a person has been at these addresses. */
  static sentAway(tool: string, round: number, elicitations: readonly unknown[]): Round {
    const open = elicitations.map((params, index): [string, unknown] => [String(index), params]);
    return Round.#bounded({ v: 1, tool, round, requestState: null, isRepeated: true, open, answers: [] });
  }

  static #bounded(state: RoundState): Round {
    if (state.round > LIMITS.rounds) throw new QuestionError(`has asked more than ${LIMITS.rounds} times`);
    if (state.open.length === 0 || state.open.length > LIMITS.questionsPerRound) {
      throw new QuestionError(`asks ${state.open.length} questions at once; ${LIMITS.questionsPerRound} are the most`);
    }
    const made = new Round(state);
    for (const [, params] of state.open) questionOf(params);
    if (made.text.length > LIMITS.stateCharsMax) throw new QuestionError('asks with a state that is too large');
    return made;
  }

  /** Null: the text is not one of this tool. */
  static read(text: string, tool: string): Round | null {
    if (text.length > 2 * LIMITS.stateCharsMax) return null;
    try {
      const parsed = roundState.safeParse(JSON.parse(text));
      return parsed.success && parsed.data.tool === tool ? new Round(parsed.data) : null;
    } catch {
      return null;
    }
  }

  get text(): string {
    return JSON.stringify(this.#state);
  }

  get number(): number {
    return this.#state.round;
  }

  get question(): McpQuestion {
    return questionOf(this.#state.open[0]?.[1]);
  }

  /** After the answer to its question: the next one to ask, or what the server is sent. */
  answered(given: McpAnswer): Round | RoundAnswers {
    const { open, answers, requestState, isRepeated } = this.#state;
    const [first, ...rest] = open;
    const all: RoundState['answers'] = first === undefined ? answers : [...answers, [first[0], { ...given }]];
    if (rest.length > 0) return new Round({ ...this.#state, open: rest, answers: all });
    if (isRepeated) return { isDeclined: all.some(([, { action }]) => action !== 'accept'), params: {} };
    const inputResponses = Object.fromEntries(all.map(([key, one]) => [key, elicitResultOf(one)]));
    return { isDeclined: false, params: { inputResponses, ...(requestState === null ? {} : { requestState }) } };
  }
}

export interface RoundAnswers {
  /** The person has not done what the server requires before the call. */
  readonly isDeclined: boolean;
  /** Members of the call's request. */
  readonly params: Readonly<Record<string, unknown>>;
}
