import type { Manifest } from '#src/domain/agent/manifest.ts';
import type { Decision } from '#src/domain/kernel/decision.ts';
import { deriveId } from '#src/domain/kernel/ids.ts';
import { decideMessage, decideTurn } from '#src/domain/session/decide.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import type { SessionState } from '#src/domain/session/state.ts';
import { advance, claim, settle } from '#src/domain/turn/process.ts';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import { rootOf } from '#src/domain/turn/state.ts';
import type { ActiveTurn } from '#src/domain/turn/state.ts';
import type { Thread } from '#src/domain/turn/thread.ts';
import { given, open, START_MS } from './given.ts';
import { at, created, message, TURN, usage, WORKER } from './sessions.ts';

/** One step of a turn, as the engine would take it. */
export type Step = (state: SessionState) => Decision<SessionEvent, void>;

export const call = (n: number): string => deriveId('mc', TURN, n);
export const effect = (n: number): string => deriveId('ef', TURN, n);
/** The active turn with its root thread's members beside its own. */
export const turnOf = (state: SessionState): ActiveTurn & Thread => {
  const { turn } = open(state);
  if (turn === null) throw new Error('no turn is active');
  return { ...turn, ...rootOf(turn) };
};

/** Who runs the turn; null: nobody. */
const holder = (state: SessionState): string | null =>
  (state.status === 'open' ? state.turn?.claim?.workerId : undefined) ?? null;

export const answer = (text: string, toolNames: string[] = []): ModelOutcome => ({
  kind: 'completed',
  text,
  toolCalls: toolNames.map((name, n) => ({ callId: `t${n}`, name, input: {} })),
  usage: usage(),
});
export const failure = (retryAfterMs: number | null): ModelOutcome => ({
  kind: 'failed',
  error: { code: 'overloaded', message: 'Busy.' },
  retryAfterMs,
  usage: usage({ tokensReported: false, costUsd: 0, inputTokens: 0, outputTokens: 0, totalTokens: 0 }),
});

export const settling =
  (n: number, outcome: ModelOutcome, { ms = 0, release = false, jitter = 1 } = {}): Step =>
  (state) =>
    decideTurn(state, START_MS + ms, (draft) => {
      settle(draft, { callId: call(n), outcome }, { ...at(ms, { jitter, workerId: holder(state) }), release });
    });
export const claiming =
  (workerId: string, ms = 0): Step =>
  (state) =>
    decideTurn(state, START_MS + ms, (draft) => {
      claim(draft, workerId, at(ms));
    });
export const advancing =
  (ms: number, release = false): Step =>
  (state) =>
    decideTurn(state, START_MS + ms, (draft) => {
      advance(draft, { ...at(ms, { workerId: holder(state) }), release });
    });

export const started = (limits: Manifest['limits'] = {}, workerId: string | null = WORKER): SessionState => {
  const manifest: Manifest = { instructions: '', model: { provider: 'fixture', model: 'echo' }, limits };
  const session = given([created({ manifest })]);
  const decision = session.when((state) => decideMessage(state, message(), at(0, { workerId })));
  return given([created({ manifest }), ...decision.events]).state;
};
