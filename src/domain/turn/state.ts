import { evolveOpenWork, NO_OPEN_WORK, withoutInteraction } from '../action/state.ts';
import type { Action, OpenWork } from '../action/state.ts';
import type { Manifest, ModelChoice, UsedAgents } from '../agent/manifest.ts';
import type { EventMeta } from '../kernel/decision.ts';
import { restAfter } from './attendance.ts';
import { answeredQuestion, uncertainCalls } from './mcp-calls.ts';
import type { TurnEvent } from './events.ts';
import { evolveThread, heldThread, ROOT, startThread, usageAfter } from './thread.ts';
import type { OpenSandboxCall, Thread } from './thread.ts';
import { ZERO_TOTAL } from './usage.ts';
import type { Usage } from './usage.ts';

/**
 * The active turn of a session. It begins with `turn.started` and its end removes it, so that no late event can
 * continue an ended turn.
 */
export interface ActiveTurn {
  readonly turnId: string;
  /** The failed turn that it continues from; null: it started with a message. */
  readonly retryOf: string | null;
  readonly startedAt: string;
  readonly deadlineAt: string;
  /** The trace of the sender of the message (`traceparent`), if it named one. */
  readonly sender?: string;
  /** Since when it has been waiting for people, which stops its clock. Null: it is not. */
  readonly pausedAt: string | null;
  readonly maxSteps: number;
  /** Null: no limit of its own. */
  readonly maxCostUsd: number | null;
  readonly model: ModelChoice | null;
  /** What the message brought for this turn; null: the session's. */
  readonly manifest: Manifest | null;
  readonly agents: UsedAgents | null;
  /** Who runs it; null: no worker. */
  readonly claim: { readonly epoch: number; readonly workerId: string } | null;
  /** No worker runs it and there is something to run. */
  readonly wanted: boolean;
  /** No worker runs it, and none has to before this time; null: it is not idle, or is until someone answers. */
  readonly restsUntil: string | null;
  /** The highest epoch so far, kept across releases of the turn. */
  readonly epoch: number;
  /** Calls of models and MCP servers so far, over all threads, steps and attempts; effect ids are counted up by it. */
  readonly calls: number;
  /** Actions, interactions and delegations so far; their ids are counted up by it. */
  readonly made: number;
  readonly threads: Readonly<Record<string, Thread>>;
  readonly work: OpenWork;
  /** What readers have been told that the turn waits for. */
  readonly announced: readonly string[];
  readonly usage: Usage;
}

/** The session's own agent in a turn. */
export function rootOf(turn: ActiveTurn): Thread {
  return turn.threads[ROOT] ?? startThread(null, turn.startedAt);
}

/**
 * The call of a built-in tool that is run next, or under way: the one that was requested first. A worker that takes the turn
 * over has to come to the same: the sandbox knows of one call whether it has begun.
 */
export function nextSandboxCall({ threads }: ActiveTurn): OpenSandboxCall | undefined {
  const calls = Object.values(threads).flatMap(({ sandboxCalls }) => sandboxCalls);
  return calls.toSorted((one, other) => one.number - other.number)[0];
}

/**
 * The turn after one of its events; null: it has ended, or does not exist. An event that cannot apply changes nothing.
 */
export function evolveTurn(turn: ActiveTurn | null, event: TurnEvent, meta: EventMeta): ActiveTurn | null {
  if (event.type === 'turn.started') return startedTurn(event.data, meta);
  if (turn === null || event.data.turnId !== turn.turnId) return turn;
  switch (event.type) {
    case 'turn.completed':
    case 'turn.failed':
    case 'turn.cancelled':
      return null;
    case 'segment.claimed': {
      const { epoch, workerId } = event.data;
      return { ...turn, claim: { epoch, workerId }, wanted: false, restsUntil: null, epoch, threads: held(turn) };
    }
    case 'segment.released':
      return { ...turn, claim: null, ...restAfter(event.data) };
    case 'segment.wanted':
      return { ...turn, wanted: true, restsUntil: null };
    case 'turn.extended':
      return { ...turn, deadlineAt: event.data.deadlineAt, pausedAt: null };
    case 'turn.raised':
      return { ...turn, maxCostUsd: event.data.maxCostUsd };
    case 'turn.paused':
    case 'turn.uncertain':
      return { ...turn, announced: announcedBy(turn), pausedAt: turn.pausedAt ?? meta.at };
    case 'turn.waiting':
      return { ...turn, announced: announcedBy(turn) };
    case 'command.approve':
      return answered(turn, event.data.interactionId, null);
    case 'command.respond':
      return answered(turn, event.data.interactionId, { value: event.data.value });
    case 'interaction.withdrawn':
      return answered(turn, event.data.interactionId, null);
    default:
      return evolveThreads(turn, event, meta);
  }
}

/**
 * The key under which a wait counts as announced: an action that is offered again, or has become uncertain, is news.
 */
export function waitKey({ actionId, generation, status }: Action): string {
  return `${actionId}.${generation}${status === 'uncertain' ? '.uncertain' : ''}`;
}

/** An announcement names everything that the turn waits for at that point. */
function announcedBy(turn: ActiveTurn): string[] {
  const { interactions, actions } = turn.work;
  const inDoubt = uncertainCalls(turn).map(({ effectId }) => effectId);
  return [...Object.keys(interactions), ...Object.values(actions).map(waitKey), ...inDoubt];
}

/** @param value what a person answered; null: it was allowed or refused, or is no longer asked */
function answered(turn: ActiveTurn, interactionId: string, value: { value?: unknown } | null): ActiveTurn {
  const work = withoutInteraction(turn.work, interactionId);
  let { threads } = turn;
  for (const [id, thread] of Object.entries(threads)) {
    const blockedBy = thread.blockedBy === interactionId ? null : thread.blockedBy;
    const mcp = answeredQuestion(thread.mcp, interactionId, value);
    if (blockedBy !== thread.blockedBy || mcp !== thread.mcp)
      threads = { ...threads, [id]: { ...thread, blockedBy, mcp } };
  }
  return { ...turn, work, threads };
}

/** The threads of a turn that a worker has claimed. */
function held({ threads }: ActiveTurn): ActiveTurn['threads'] {
  return Object.fromEntries(Object.entries(threads).map(([id, thread]) => [id, heldThread(thread)]));
}

function evolveThreads(turn: ActiveTurn, event: TurnEvent, meta: EventMeta): ActiveTurn {
  const next = counted(turn, event, meta);
  const id = threadOf(next, event);
  const thread = id === null ? undefined : next.threads[id];
  if (id === null || thread === undefined) return next;
  const when = { epoch: turn.epoch, isHeld: turn.claim !== null, made: next.made, at: meta.at };
  const evolved = evolveThread(thread, event, when);
  return evolved === thread ? next : { ...next, threads: { ...next.threads, [id]: evolved } };
}

/** What an event does to the turn as a whole: its counters, its open work, and the threads that come and go. */
function counted(turn: ActiveTurn, event: TurnEvent, meta: EventMeta): ActiveTurn {
  switch (event.type) {
    case 'model.requested':
      return { ...turn, calls: turn.calls + 1 };
    case 'model.completed':
    case 'model.failed':
    case 'model.reported':
      return { ...turn, usage: usageAfter(turn.usage, event) };
    case 'delegation.started': {
      const { agent, callId, task } = event.data;
      const thread = startThread({ agent, callId, task }, meta.at);
      return { ...turn, made: turn.made + 1, threads: { ...turn.threads, [agent.delegationId]: thread } };
    }
    case 'delegation.completed': {
      const { [event.data.agent.delegationId]: _gone, ...threads } = turn.threads;
      return { ...turn, threads };
    }
    case 'sandbox.requested':
    case 'mcp.submitted':
      return { ...turn, made: turn.made + 1 };
    case 'mcp.requested':
      return { ...turn, made: turn.made + 1, calls: turn.calls + 1 };
    case 'mcp.repeated':
      return { ...turn, calls: turn.calls + 1 };
    case 'action.pending':
    case 'interaction.opened':
      return { ...turn, made: turn.made + 1, work: evolveOpenWork(turn.work, event, meta) };
    case 'action.claimed':
    case 'action.extended':
    case 'action.answered':
    case 'action.completed':
    case 'action.uncertain':
      return { ...turn, work: evolveOpenWork(turn.work, event, meta) };
    case 'action.withdrawn':
      return { ...withDoubt(turn, event.data.actionId), work: evolveOpenWork(turn.work, event, meta) };
    default:
      return turn;
  }
}

/**
 * A call of the session's own agent that is withdrawn after an executor had it may have run, and is remembered as such.
 */
function withDoubt(turn: ActiveTurn, actionId: string): ActiveTurn {
  const action = turn.work.actions[actionId];
  const root = turn.threads[ROOT];
  if (action === undefined || root === undefined || action.kind !== 'tool' || action.agent !== null) return turn;
  if (action.status === 'pending' && action.generation === 1) return turn;
  const doubtful = [...root.doubtful, action.callId];
  return { ...turn, threads: { ...turn.threads, [ROOT]: { ...root, doubtful } } };
}

/** The thread that an event belongs to; null: none. */
function threadOf(turn: ActiveTurn, event: TurnEvent): string | null {
  if (event.type === 'model.completed' || event.type === 'model.failed' || event.type === 'model.withheld') {
    const { callId } = event.data;
    return Object.keys(turn.threads).find((id) => turn.threads[id]?.pending?.callId === callId) ?? null;
  }
  // The end of a delegation is an answer to the agent above it.
  if (event.type === 'delegation.completed' || event.type === 'delegation.started') return ROOT;
  const agent = 'agent' in event.data ? event.data.agent : undefined;
  return agent === undefined ? ROOT : agent.delegationId;
}

function startedTurn(data: Extract<TurnEvent, { type: 'turn.started' }>['data'], meta: EventMeta): ActiveTurn {
  return {
    turnId: data.turnId,
    retryOf: data.retryOf ?? null,
    startedAt: meta.at,
    ...(data.traceparent === undefined ? {} : { sender: data.traceparent }),
    deadlineAt: data.deadlineAt,
    pausedAt: null,
    maxSteps: data.maxSteps,
    maxCostUsd: data.maxCostUsd ?? null,
    model: data.model,
    manifest: data.manifest,
    agents: data.agents ?? null,
    claim: null,
    wanted: true,
    restsUntil: null,
    epoch: 0,
    calls: 0,
    made: 0,
    threads: { [ROOT]: startThread(null, meta.at) },
    work: NO_OPEN_WORK,
    announced: [],
    usage: ZERO_TOTAL,
  };
}
