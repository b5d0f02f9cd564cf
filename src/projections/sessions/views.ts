import { optional } from '../../domain/kernel/optional.ts';
import type { AgentRef } from '../../domain/action/events.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { ForkOrigin } from '../../domain/session/fork-events.ts';
import { usageAfter } from '../../domain/turn/thread.ts';
import type { LastTurn } from '../../domain/session/state.ts';
import { attendanceAfter, isAttended } from '../../domain/turn/attendance.ts';
import { evolveWaits, statusBy, statusOf, waitsOf } from '../../domain/turn/summary.ts';
import type { TurnStatus, Wait } from '../../domain/turn/summary.ts';
import type { ActiveTurn } from '../../domain/turn/state.ts';
import { isOfTurn } from '../../domain/turn/events.ts';
import type { TurnError, TurnEvent } from '../../domain/turn/events.ts';
import type { FinishReason } from '../../domain/turn/attempt.ts';
import { addUsage, NO_USAGE, ZERO_TOTAL } from '../../domain/turn/usage.ts';
import type { Usage } from '../../domain/turn/usage.ts';
import { isCanonical } from '../../domain/session/canonical.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import type { EventPlace, InheritedPart } from '../../streams/cursor.ts';

/** A session as its route shows it, but for the cursor, which needs the session's name. */
export interface SessionView {
  readonly id: string;
  readonly agentId: string;
  readonly agentVersion: number;
  readonly manifestHash: string;
  readonly subject: string | null;
  readonly status: 'idle' | TurnStatus;
  readonly activeTurnId: string | null;
  readonly lastTurn: LastTurn | null;
  /** What the active turn waits for, by id. */
  readonly waits: readonly Wait[];
  /** Whether a worker runs the active turn, or should. */
  readonly busy: boolean;
  readonly labels: Readonly<Record<string, string>>;
  readonly info: Readonly<Record<string, unknown>>;
  /** Absent: it never had any. */
  readonly vaultIds?: readonly string[] | undefined;
  readonly usage: Usage;
  /** The place of the newest record of the canonical history; null while it is empty. */
  readonly last: EventPlace | null;
  /** Of a fork: whose history comes before its own. */
  readonly origin?: ForkOrigin;
  /** Absent: it has none. */
  readonly sandboxId?: string;
  readonly createdPosition: number;
  readonly createdAt: string;
  readonly updatedAt: string;
}

/** One turn, for operators and audits. */
export interface TurnView {
  readonly turnId: string;
  readonly status: 'running' | 'completed' | 'failed' | 'cancelled';
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly segments: number;
  readonly steps: number;
  readonly error: TurnError | null;
  readonly usage: Usage;
}

/** One model call. */
export interface ModelCallView {
  readonly id: string;
  readonly sessionId: string;
  readonly turnId: string;
  readonly agentId: string;
  readonly provider: string;
  readonly model: string;
  readonly at: string;
  readonly outcome: 'pending' | 'withheld' | 'completed' | 'failed' | 'cancelled' | 'lost';
  /** Of the attempts at its step, from 1; absent: the first. */
  readonly attempt?: number;
  readonly finishReason?: FinishReason | undefined;
  readonly latencyMs?: number | undefined;
  readonly firstTokenMs?: number | undefined;
  readonly usage: Usage;
  readonly position: number;
  readonly index: number;
}

/** One record of the canonical history; `payload` is JSON text. */
export interface HistoryRecord {
  readonly eventId: string;
  readonly turnId: string | null;
  readonly at: string;
  readonly type: string;
  readonly payload: string;
  readonly shard: number;
  readonly position: number;
  readonly index: number;
  /** Of a fork's record that is in another session (projections/forks). */
  readonly inherited?: InheritedPart | undefined;
}

export type HistoryPlace = Pick<HistoryRecord, 'shard' | 'position' | 'index' | 'inherited'>;

/** Where and when an event was recorded. */
export interface EventPlaceInTime {
  readonly at: string;
  readonly shard: number;
  readonly position: number;
  readonly index: number;
}

export interface PlacedEvent {
  readonly event: SessionEvent;
  readonly place: EventPlaceInTime;
}

/** The events of a session's commit, with their places. */
export function placedEvents({ commit, shard, position }: StoredCommit): readonly PlacedEvent[] {
  return eventsOf<SessionEvent>(commit).map((event, index) => ({
    event,
    place: { at: commit.at, shard, position, index },
  }));
}

/** Shared by the projection and by the top-up of a page that is ahead of it. */
export function evolveSessionView(
  view: SessionView | undefined,
  event: SessionEvent,
  context: EventPlaceInTime & { readonly id: string },
): SessionView | undefined {
  const { at, shard, position, index, id } = context;
  if (event.type === 'session.created') {
    const { agentId, agentVersion, manifestHash, subject, labels, info, origin, vaultIds, sandbox } = event.data;
    const created = {
      id,
      agentId,
      agentVersion,
      manifestHash,
      subject,
      labels,
      info,
      createdPosition: position,
      createdAt: at,
      updatedAt: at,
      ...optional({ origin, vaultIds, sandboxId: sandbox?.sandboxId }),
    };
    return {
      ...created,
      status: 'idle',
      activeTurnId: null,
      lastTurn: null,
      waits: [],
      busy: false,
      usage: ZERO_TOTAL,
      last: lastInherited(origin, position),
    };
  }
  if (view === undefined || event.type === 'session.deleted') return undefined;
  const last = isCanonical(event.type) ? { shard, position, index } : view.last;
  const usage = isOfTurn(event) ? usageAfter(view.usage, event) : view.usage;
  const next = { ...view, last, updatedAt: at, usage };
  switch (event.type) {
    case 'session.updated':
      return { ...next, ...event.data };
    case 'turn.started':
      return { ...next, status: 'running', activeTurnId: event.data.turnId, waits: [], busy: true };
    case 'turn.completed':
    case 'turn.failed':
    case 'turn.cancelled': {
      // A turn that was cancelled in the queue never was the active one.
      if (view.activeTurnId !== event.data.turnId) return next;
      const lastTurn = { turnId: event.data.turnId, outcome: outcomeOf(event.type), endedAt: at };
      return { ...next, status: 'idle', activeTurnId: null, lastTurn, waits: [], busy: false };
    }
    default:
      return view.activeTurnId !== null && isOfTurn(event) ? withWaits(next, event) : next;
  }
}

/** The newest record of a fork that has none of its own yet. */
export function lastInherited(origin: ForkOrigin | null | undefined, createdPosition: number): EventPlace | null {
  if (origin?.last == null) return null;
  const { ancestor, position, index } = origin.last;
  return { shard: origin.ancestry[ancestor]?.shard ?? 0, position, index, inherited: { ancestor, createdPosition } };
}

/** What a session shows of its active turn, from the fold: the answer of a write does not wait for a read model. */
export function viewOfTurn(turn: ActiveTurn | null): Pick<SessionView, 'status' | 'activeTurnId' | 'waits'> {
  if (turn === null) return { status: 'idle', activeTurnId: null, waits: [] };
  return { status: statusOf(turn), activeTurnId: turn.turnId, waits: waitsOf(turn) };
}

function withWaits(view: SessionView, event: TurnEvent): SessionView {
  const attendance = attendanceAfter(event);
  const busy = attendance === null ? view.busy : isAttended(attendance);
  const waits = evolveWaits(view.waits, event);
  if (waits === view.waits && busy === view.busy) return view;
  return { ...view, busy, waits, status: statusBy(waits, busy) };
}

function outcomeOf(type: 'turn.completed' | 'turn.failed' | 'turn.cancelled'): 'completed' | 'failed' | 'cancelled' {
  return type === 'turn.completed' ? 'completed' : type === 'turn.failed' ? 'failed' : 'cancelled';
}

export function evolveTurnView(view: TurnView | undefined, event: SessionEvent, at: string): TurnView | undefined {
  if (event.type === 'turn.started') {
    const { turnId } = event.data;
    return {
      turnId,
      status: 'running',
      startedAt: at,
      endedAt: null,
      segments: 0,
      steps: 0,
      error: null,
      usage: ZERO_TOTAL,
    };
  }
  if (view === undefined) return undefined;
  switch (event.type) {
    case 'segment.claimed':
      return { ...view, segments: view.segments + 1 };
    case 'model.completed':
      return { ...view, steps: view.steps + 1, usage: addUsage(view.usage, event.data.usage) };
    case 'model.reported':
      return { ...view, usage: addUsage(view.usage, event.data.usage) };
    case 'model.failed':
      return { ...view, usage: usageAfter(view.usage, event) };
    case 'turn.completed':
    case 'turn.failed':
    case 'turn.cancelled':
      return {
        ...view,
        status: outcomeOf(event.type),
        endedAt: at,
        error: event.type === 'turn.failed' ? event.data.error : null,
      };
    default:
      return view;
  }
}

/** The agent used as a tool that an event belongs to; null: it is of the session's own agent. */
export function agentOf(event: SessionEvent): AgentRef | null {
  return ('agent' in event.data ? event.data.agent : undefined) ?? null;
}

/** The call that an event is about; null for every other event. */
export function callIdOf(event: SessionEvent): string | null {
  switch (event.type) {
    case 'model.requested':
    case 'model.withheld':
    case 'model.completed':
    case 'model.failed':
    case 'model.reported':
    case 'effect.uncertain':
      return event.data.callId;
    default:
      return null;
  }
}

export function evolveCallView(
  view: ModelCallView | undefined,
  event: SessionEvent,
  context: EventPlaceInTime & { readonly sessionId: string; readonly agentId: string },
): ModelCallView | undefined {
  if (event.type === 'model.requested') return requestedCall(event.data, context);
  if (view === undefined) return undefined;
  switch (event.type) {
    case 'model.withheld':
      return { ...view, outcome: 'withheld' };
    case 'model.completed':
      return { ...view, outcome: 'completed', ...ended(event.data) };
    case 'model.failed':
      return { ...view, outcome: 'failed', ...ended(event.data) };
    case 'model.reported':
      return { ...view, ...ended(event.data) };
    case 'effect.uncertain':
      return { ...view, outcome: event.data.reason };
    default:
      return view;
  }
}

/** What is known of a call once it has ended. */
function ended({
  usage,
  finishReason,
  latencyMs,
  firstTokenMs,
}: Extract<TurnEvent, { type: 'model.reported' }>['data']): Partial<ModelCallView> & Pick<ModelCallView, 'usage'> {
  return { usage, ...optional({ finishReason, latencyMs, firstTokenMs }) };
}

function requestedCall(
  data: Extract<TurnEvent, { type: 'model.requested' }>['data'],
  {
    at,
    position,
    index,
    sessionId,
    agentId,
  }: EventPlaceInTime & { readonly sessionId: string; readonly agentId: string },
): ModelCallView {
  const { callId: id, turnId, provider, model, agent, attempt } = data;
  return {
    id,
    sessionId,
    turnId,
    agentId: agent?.id ?? agentId,
    provider,
    model,
    at,
    outcome: 'pending',
    ...(attempt === 0 ? {} : { attempt: attempt + 1 }),
    usage: NO_USAGE,
    position,
    index,
  };
}
