import { Draft } from '#src/domain/kernel/decision.ts';
import { toTimestamp } from '#src/domain/kernel/time.ts';
import type { Action, Interaction } from '#src/domain/action/state.ts';
import type { Manifest } from '#src/domain/agent/manifest.ts';
import type { Decision } from '#src/domain/kernel/decision.ts';
import { decideApprove, decideRespond } from '#src/domain/session/answer.ts';
import { decideActionResult, decideClaim } from '#src/domain/session/claims.ts';
import { decideCancel, decideMessage, decideTurn } from '#src/domain/session/decide.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { receiptKey } from '#src/domain/session/receipts.ts';
import { evolveSession, initialSession } from '#src/domain/session/state.ts';
import type { OpenSession, SessionState } from '#src/domain/session/state.ts';
import type { TurnContext } from '#src/domain/turn/context.ts';
import { advance, claim, fail, handBack, reportLate, settle } from '#src/domain/turn/process.ts';
import { NO_USAGE } from '#src/domain/turn/usage.ts';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import type { ActiveTurn } from '#src/domain/turn/state.ts';
import { newId } from '#src/lib/ids.ts';
import type { Commit, CommitReceipt } from '#src/streams/commit.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { START_MS } from './given.ts';
import type { Random } from './random.ts';
import { created, MANIFEST, usage } from './sessions.ts';

const AGENTS = ['agents/a', 'agents/b', 'c'];
const SUBJECTS = [null, null, 'ada', 'bob'];
const TEXTS = ['Hello', 'Grüße, 世界 🎉', '"quoted" \\ and\nlines', '{"a": [1, 2]}', '<script>&amp;'];

const anything = { type: 'object' };
const HELPER: Manifest = { ...MANIFEST, tools: [{ name: 'find', inputSchema: anything }] };
/** Of tools that run at once, that people allow, and of an agent used as a tool. */
const WITH_TOOLS: Manifest = {
  ...HELPER,
  tools: [...(HELPER.tools ?? []), { name: 'careful', inputSchema: anything, approval: 'always' }],
  agents: [{ agentId: 'helper', description: '' }],
};
const CALLED = [
  { name: 'find', input: { q: 1 } },
  { name: 'careful', input: {} },
  { name: 'helper', input: { task: 'Help.' } },
  { name: 'absent', input: {} },
];

/** A session to which the domain lets something happen, step by step; each step is a commit as the command loop makes it. */
export class RandomSession {
  readonly ref: AggregateRef;
  readonly #random: Random;
  #state: SessionState = initialSession;
  #rev = 0;
  #ms: number;
  #earlierCalls: { turnId: string; callId: string }[] = [];

  constructor(random: Random, ref: AggregateRef) {
    this.#random = random;
    this.ref = ref;
    this.#ms = START_MS + random.int(0, 3);
  }

  /** The fold of all its commits. */
  get state(): OpenSession {
    if (this.#state.status !== 'open') throw new Error('the session has not begun');
    return this.#state;
  }

  next(): Commit {
    // Sessions are made at few instants, so that lists meet equal times.
    if (this.#rev > 0) this.#ms += this.#random.int(1, 400);
    const at = toTimestamp(this.#ms);
    for (;;) {
      const draft = new Draft<SessionState, SessionEvent>(this.#state, evolveSession, at);
      const receipt = this.#happen(draft);
      if (draft.events.length === 0) continue;
      this.#state = draft.state;
      const events = draft.events.map(({ type, data }) => ({ id: newId('ev'), type, v: 1, data: { ...data } }));
      const made = {
        v: 1,
        rev: ++this.#rev,
        commitId: newId('co'),
        at,
        actor: 'application:test',
        causation: 'r',
      } as const;
      return { ...made, ...(receipt === undefined ? {} : { receipt }), events };
    }
  }

  #pick<T>(choices: readonly T[]): T {
    return choices[this.#random.int(0, choices.length - 1)] as T;
  }

  #happen(draft: Draft<SessionState, SessionEvent>): CommitReceipt | undefined {
    const { state } = draft;
    if (state.status === 'absent') {
      draft.add(this.#created());
      return undefined;
    }
    return state.turn === null ? this.#between(draft, state) : this.#within(draft, { ...state, turn: state.turn });
  }

  #created(): SessionEvent {
    const opening = { agentId: this.#pick(AGENTS), subject: this.#pick(SUBJECTS), labels: this.#labels() };
    const agents = { helper: { version: 1, manifest: HELPER } };
    return created({ ...opening, manifest: WITH_TOOLS, agents, info: { n: this.#rev } });
  }

  #within(
    draft: Draft<SessionState, SessionEvent>,
    state: OpenSession & { readonly turn: ActiveTurn },
  ): CommitReceipt | undefined {
    const clock = { nowMs: this.#ms, jitter: 1, workerId: state.turn?.claim?.workerId ?? null };
    const { turn } = state;
    const calling = Object.values(turn.threads).flatMap((thread) => (thread.pending === null ? [] : [thread.pending]));
    const pending = calling.length === 0 ? null : this.#pick(calling);
    if (pending !== null) this.#earlierCalls.push({ turnId: turn.turnId, callId: pending.callId });
    const open = [...Object.values(turn.work.actions), ...Object.values(turn.work.interactions)];
    if (open.length > 0 && this.#random.int(0, 3) > 0) {
      this.#answer(draft, state, this.#pick(open));
      return undefined;
    }
    switch (this.#random.int(0, 9)) {
      case 0:
        return this.#cancel(draft, state);
      case 1:
        claim(draft, this.#pick(['wk_a', 'wk_b']), clock);
        return undefined;
      case 2:
        handBack(draft, turn.claim?.workerId ?? '');
        return undefined;
      case 3:
        if (this.#random.int(0, 3) === 0) fail(draft, { code: 'internal_error', message: this.#pick(TEXTS) }, clock);
        return undefined;
      case 4:
        this.#ms += 60_000;
        advance(draft, { ...clock, nowMs: this.#ms });
        return undefined;
      default:
        if (turn.claim === null) claim(draft, 'wk_a', clock);
        else settle(draft, { callId: pending?.callId ?? '', outcome: this.#outcome() }, clock);
        return undefined;
    }
  }

  /** What an executor or a person does about something that the turn waits for. */
  #answer(draft: Draft<SessionState, SessionEvent>, state: OpenSession, open: Action | Interaction): void {
    const context = { nowMs: this.#ms, jitter: 1, workerId: this.#pick([null, 'wk_a']) };
    const decision = 'status' in open ? this.#act(state, open, context) : this.#reply(state, open, context);
    // Whoever is too late is refused, and nothing happens.
    if (decision.kind === 'accepted') for (const event of decision.events) draft.add(event);
  }

  #act(state: OpenSession, action: Action, context: TurnContext): Decision<SessionEvent, unknown> {
    const { actionId, agentId, generation } = action;
    const requestId = `r-${this.#rev}`;
    const subject = null;
    if (action.status === 'uncertain') {
      const value = this.#pick([{ resolution: 'retry' }, { resolution: 'fail' }, { resolution: 'result', result: 1 }]);
      return decideRespond(state, { requestId, subject, interactionId: actionId, value }, context);
    }
    if (action.claim === null) {
      return decideClaim(state, { actionId, agentId, requestId, claimId: `cl_${this.#rev}` }, context);
    }
    const held = { actionId, agentId, generation, claimId: action.claim.claimId };
    const interaction = { kind: this.#pick(['question', 'approval'] as const), prompt: this.#pick(TEXTS) };
    switch (this.#random.int(0, 4)) {
      case 0:
        return decideTurn(state, context.nowMs, (draft) =>
          advance(draft, { ...context, lapsed: new Set([held.claimId]) }),
        );
      case 1: {
        const outcome = { kind: 'ask', interaction } as const;
        return decideActionResult(state, { ...held, requestId, outcome, outcomeHash: requestId }, context);
      }
      default: {
        const outcome = { kind: 'completed', output: this.#pick(TEXTS) } as const;
        return decideActionResult(state, { ...held, requestId, outcome, outcomeHash: requestId }, context);
      }
    }
  }

  #reply(state: OpenSession, interaction: Interaction, context: TurnContext): Decision<SessionEvent, unknown> {
    const command = { requestId: `r-${this.#rev}`, subject: state.subject, interactionId: interaction.interactionId };
    if (interaction.kind === 'question') {
      return decideRespond(state, { ...command, value: this.#pick(TEXTS) }, context);
    }
    return decideApprove(state, { ...command, approved: this.#random.int(0, 2) > 0 }, context);
  }

  #between(draft: Draft<SessionState, SessionEvent>, state: OpenSession): CommitReceipt | undefined {
    const late = this.#earlierCalls.at(-1);
    switch (this.#random.int(0, 9)) {
      case 0:
        draft.add({ type: 'session.updated', data: { labels: this.#labels() } });
        return undefined;
      case 1:
        if (late !== undefined) reportLate(draft, { ...late, usage: usage({ duplicate: true }) });
        return undefined;
      case 2:
        return this.#cancel(draft, state);
      default:
        return this.#message(draft, state);
    }
  }

  #message(draft: Draft<SessionState, SessionEvent>, state: OpenSession): CommitReceipt {
    const newTurnId = newId('tu');
    const workerId = this.#pick([null, 'wk_a', 'wk_b']);
    const context = { nowMs: this.#ms, jitter: 1, newTurnId, workerId, tenantModel: null };
    const requestId = `r-${this.#rev}`;
    const content = this.#pick(TEXTS);
    const decision = decideMessage(state, { requestId, subject: state.subject, content }, context);
    if (decision.kind !== 'accepted') throw new Error('a message was refused');
    for (const event of decision.events) draft.add(event);
    return this.#receipt(requestId, newTurnId);
  }

  #cancel(draft: Draft<SessionState, SessionEvent>, state: OpenSession): CommitReceipt {
    const requestId = `r-${this.#rev}`;
    const command = {
      requestId,
      subject: null,
      ...(this.#random.int(0, 1) === 0 ? {} : { reason: this.#pick(TEXTS) }),
    };
    const decision = decideCancel(state, command, { nowMs: this.#ms, jitter: 1, workerId: null });
    if (decision.kind !== 'accepted') throw new Error('a cancel was refused');
    for (const event of decision.events) draft.add(event);
    return this.#receipt(requestId, decision.reply.turnId);
  }

  #receipt(requestId: string, turnId: string | null): CommitReceipt {
    return { key: receiptKey(null, `k-${this.#rev}`), hash: 'h', requestId, turnId };
  }

  #outcome(): ModelOutcome {
    const text = this.#pick(TEXTS);
    switch (this.#random.int(0, 4)) {
      case 0:
      case 1:
        return {
          kind: 'completed',
          text,
          toolCalls: Array.from({ length: this.#random.int(1, 2) }, (_, n) => ({
            callId: `t${this.#rev}-${n}`,
            ...this.#pick(CALLED),
          })),
          usage: usage(),
        };
      case 2: {
        const error = { code: 'overloaded', message: text };
        const retryAfterMs = this.#random.int(0, 1) === 0 ? null : 1;
        const estimated = usage({ tokensReported: false });
        return { kind: 'failed', error, retryAfterMs, usage: this.#random.int(0, 1) === 0 ? NO_USAGE : estimated };
      }
      default:
        return { kind: 'completed', text, toolCalls: [], usage: usage() };
    }
  }

  #labels(): Record<string, string> {
    return Object.fromEntries(
      ['team', 'env'].filter(() => this.#random.int(0, 2) > 0).map((name) => [name, this.#pick(['red', 'blue'])]),
    );
  }
}

/** Commits of several sessions as they would lie in one stream, in random order. */
export function randomHistory(
  random: Random,
  { sessions, commits, tenant = newId('tn') }: { sessions: number; commits: number; tenant?: string },
): { readonly sessions: readonly RandomSession[]; readonly commits: { ref: AggregateRef; commit: Commit }[] } {
  const all = Array.from(
    { length: sessions },
    (_, n) => new RandomSession(random, { tenant, kind: 'session', id: `s/${n}` }),
  );
  const made = Array.from({ length: commits }, (_, n) => {
    const session = all[n < sessions ? n : random.int(0, sessions - 1)] as RandomSession;
    return { ref: session.ref, commit: session.next() };
  });
  return { sessions: all, commits: made };
}
