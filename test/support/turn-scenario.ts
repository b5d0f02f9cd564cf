import type { Manifest } from '#src/domain/agent/manifest.ts';
import type { Outcome } from '#src/domain/action/events.ts';
import type { Action, Interaction } from '#src/domain/action/state.ts';
import type { Decision } from '#src/domain/kernel/decision.ts';
import { decideApprove, decideRespond } from '#src/domain/session/answer.ts';
import { decideActionResult, decideClaim, decideHeartbeat } from '#src/domain/session/claims.ts';
import type { ActionResultCommand } from '#src/domain/session/claims.ts';
import { decideCancel, decideMessage, decideTurn } from '#src/domain/session/decide.ts';
import type { MessageCommand, MessageContext } from '#src/domain/session/decide.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { decideRetry } from '#src/domain/session/retry.ts';
import type { RetryCommand } from '#src/domain/session/retry.ts';
import { spansOf } from '#src/domain/session/spans.ts';
import type { TurnSpan } from '#src/domain/session/spans.ts';
import { initialSession } from '#src/domain/session/state.ts';
import type { OpenSession } from '#src/domain/session/state.ts';
import { advance, claim, fail, settle } from '#src/domain/turn/process.ts';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import type { ActiveTurn } from '#src/domain/turn/state.ts';
import { conform, fold, open, START_MS } from './given.ts';
import { at, cancellation, created, MANIFEST, message, usage, WORKER } from './sessions.ts';

const AGENT = 'agents/a';

/** A tool call of a model's answer. */
export interface Called {
  readonly name: string;
  readonly input?: unknown;
}

type DataOf<T extends SessionEvent['type']> = Extract<SessionEvent, { type: T }>['data'];

/** A session's life, told step by step; each step returns the types of what it recorded. */
export class Scenario {
  readonly events: SessionEvent[] = [];
  /** Those that the commits have closed. */
  readonly spans: TurnSpan[] = [];
  session: OpenSession;
  ms = 0;
  /** The worker of the process that decides; null: it has none, or no room. */
  workerId: string | null = WORKER;
  #turns = 0;

  constructor(manifest: Partial<Manifest> = {}, agents: Record<string, Partial<Manifest>> = {}) {
    const used = Object.fromEntries(
      Object.entries(agents).map(([id, one]) => [id, { version: 1, manifest: { ...MANIFEST, ...one } }]),
    );
    const opening = { agentId: AGENT, manifest: { ...MANIFEST, ...manifest }, agents: used };
    this.session = open(fold(initialSession, [created(opening)]));
  }

  get turn(): ActiveTurn {
    const { turn } = this.session;
    if (turn === null) throw new Error('no turn is active');
    return turn;
  }

  get actions(): Action[] {
    return Object.values(this.turn.work.actions);
  }

  get interactions(): Interaction[] {
    return Object.values(this.turn.work.interactions);
  }

  /** The newest event of a type. */
  last<T extends SessionEvent['type']>(type: T): DataOf<T> {
    const event = this.events.findLast((one): one is Extract<SessionEvent, { type: T }> => one.type === type);
    if (event === undefined) throw new Error(`no ${type} has happened`);
    return event.data as DataOf<T>;
  }

  context(change: Partial<MessageContext> = {}): MessageContext {
    return at(this.ms, { workerId: this.workerId, ...change });
  }

  message(command: Partial<MessageCommand> = {}, change: Partial<MessageContext> = {}): string[] {
    this.#turns++;
    const newTurnId = `tu_${String(this.#turns).padStart(2, '0')}${'0'.repeat(24)}`;
    return this.take(decideMessage(this.session, message(command), this.context({ newTurnId, ...change })));
  }

  /** The model of the root, or of the agent used as a tool with this delegation, answers. */
  answer(text: string, calls: readonly Called[] = [], delegationId = 'root'): string[] {
    const toolCalls = calls.map(({ name, input = {} }, n) => ({ callId: `${name}-${n}`, name, input }));
    return this.settle({ kind: 'completed', text, toolCalls, usage: usage() }, delegationId);
  }

  settle(outcome: ModelOutcome, delegationId = 'root'): string[] {
    const callId = this.turn.threads[delegationId]?.pending?.callId;
    if (callId === undefined) throw new Error('no model is asked');
    return this.take(
      decideTurn(this.session, START_MS + this.ms, (draft) => {
        settle(draft, { callId, outcome }, this.context({ workerId: this.turn.claim?.workerId ?? null }));
      }),
    );
  }

  /** Time passes, and somebody looks. */
  look(ms: number, workerId: string | null = null): string[] {
    this.ms += ms;
    return this.take(
      decideTurn(this.session, START_MS + this.ms, (draft) => {
        advance(draft, this.context({ workerId, lapsed: this.#silent() }));
      }),
    );
  }

  /** Claims of executors that have not been heard of since: by the history, which has no heartbeats. */
  #silent(): ReadonlySet<string> {
    const claims = Object.values(this.session.turn?.work.actions ?? {}).flatMap(({ claim }) => claim ?? []);
    const over = claims.filter(({ leaseExpiresAt }) => START_MS + this.ms >= Date.parse(leaseExpiresAt));
    return new Set(over.map(({ claimId }) => claimId));
  }

  takeOver(workerId: string): string[] {
    return this.take(
      decideTurn(this.session, START_MS + this.ms, (draft) => {
        claim(draft, workerId, this.context());
      }),
    );
  }

  claim(action: Action, n = 1): Decision<SessionEvent, { action: Action }> {
    const command = {
      actionId: action.actionId,
      agentId: action.agentId,
      requestId: `claim-${n}`,
      claimId: `cl_${action.actionId}_${n}`,
    };
    const decision = decideClaim(this.session, command, this.context());
    this.take(decision);
    return decision;
  }

  heartbeat(action: Action): Decision<SessionEvent, { action: Action }> {
    const { actionId, agentId, generation } = action;
    const claimId = this.turn.work.actions[actionId]?.claim?.claimId ?? 'none';
    const decision = decideHeartbeat(this.session, { actionId, agentId, claimId, generation }, this.context());
    this.take(decision);
    return decision;
  }

  /** The executor that holds the action answers; claims it first where nobody has. Without the note that it did. */
  result(action: Action, outcome: ActionResultCommand['outcome'], change: Partial<ActionResultCommand> = {}): string[] {
    if (this.turn.work.actions[action.actionId]?.status === 'pending') this.claim(action);
    const held = this.turn.work.actions[action.actionId] ?? action;
    const command = {
      requestId: 'r',
      actionId: action.actionId,
      agentId: action.agentId,
      claimId: held.claim?.claimId ?? 'none',
      generation: held.generation,
      outcome,
      outcomeHash: JSON.stringify(outcome),
      ...change,
    };
    const types = this.take(decideActionResult(this.session, command, this.context()));
    return types.filter((type) => type !== 'action.answered');
  }

  approve(interactionId: string, approved: boolean, reason?: string): string[] {
    const command = { requestId: 'r', subject: null, interactionId, approved, reason };
    return this.take(decideApprove(this.session, command, this.context()));
  }

  respond(interactionId: string, value: unknown, subject: string | null = null): string[] {
    const command = { requestId: 'r', subject, interactionId, value };
    return this.take(decideRespond(this.session, command, this.context()));
  }

  cancel(turnId?: string): string[] {
    return this.take(decideCancel(this.session, cancellation({ turnId }), this.context()));
  }

  retry(command: Partial<RetryCommand> = {}, change: Partial<MessageContext> = {}): string[] {
    this.#turns++;
    const newTurnId = `tu_${String(this.#turns).padStart(2, '0')}${'0'.repeat(24)}`;
    const asked = { requestId: 'r', subject: null, ...command };
    return this.take(decideRetry(this.session, asked, this.context({ newTurnId, ...change })));
  }

  /** The process that runs the turn has met a bug. */
  fail(): string[] {
    return this.take(
      decideTurn(this.session, START_MS + this.ms, (draft) => {
        fail(draft, { code: 'internal_error', message: 'Broken.' }, this.context());
      }),
    );
  }

  /** Records what was decided: the types, or what it was refused with. */
  take(decision: Decision<SessionEvent, unknown>): string[] {
    if (decision.kind === 'rejected') return [`rejected: ${decision.code}`];
    if (decision.kind === 'unchanged') return [];
    conform(decision.events);
    const meta = { at: new Date(START_MS + this.ms).toISOString(), position: 2 };
    this.spans.push(...spansOf(this.session, decision.events, meta));
    this.session = open(fold(this.session, decision.events, meta));
    this.events.push(...decision.events);
    return decision.events.map(({ type }) => type);
  }
}

export const done = (output: unknown): Outcome => ({ kind: 'completed', output });
