import type { AgentRef } from '#src/domain/action/events.ts';
import type { Manifest, ModelSelection } from '#src/domain/agent/manifest.ts';
import type { Draft } from '#src/domain/kernel/decision.ts';
import { deriveId } from '#src/domain/kernel/ids.ts';
import type { SessionEvent } from '../session/events.ts';
import type { OpenSession, SessionState } from '../session/state.ts';
import type { ActiveTurn } from './state.ts';
import type { Thread } from './thread.ts';

export type SessionDraft = Draft<SessionState, SessionEvent>;

export interface TurnClock {
  readonly nowMs: number;
  /** 0 to 1, spreads retries; drawn by the caller, so that this stays pure. */
  readonly jitter: number;
}

/** What a step of a turn is taken with. */
export interface TurnContext extends TurnClock {
  /** The worker of this process that would run what comes next; null: there is none, or it has no room. */
  readonly workerId: string | null;
  /** The worker is stopping: what comes next is another's. */
  readonly release?: boolean;
  /** How long a claim of an executor is good for without a heartbeat, ms; absent: `LEASE_MS`. */
  readonly leaseMs?: number;
  /**
   * Claims whose executors have been silent for a whole lease in which they could have been heard, and whose heartbeats
   * are refused from now on. Whoever decides without knowing that lets every claim live.
   */
  readonly lapsed?: ReadonlySet<string>;
}

export function activeTurn(draft: SessionDraft): ActiveTurn | null {
  return draft.state.status === 'open' ? draft.state.turn : null;
}

/** The session with its active turn; null: there is none. */
export function running(draft: SessionDraft): { session: OpenSession; turn: ActiveTurn } | null {
  const { state } = draft;
  return state.status === 'open' && state.turn !== null ? { session: state, turn: state.turn } : null;
}

/** The agent id of a thread. */
export function agentIdOf(session: { readonly agentId: string }, thread: Thread): string {
  return thread.agent?.id ?? session.agentId;
}

/** The manifest that a thread follows. */
export function manifestOf(
  session: Pick<OpenSession, 'manifest' | 'agents'>,
  turn: Pick<ActiveTurn, 'manifest' | 'agents'>,
  thread: Thread,
): Manifest {
  const own = turn.manifest ?? session.manifest;
  return thread.agent === null ? own : (usedManifest(session, turn, thread.agent.id) ?? own);
}

/** The manifest of an agent that is used as a tool; undefined: it was not there when the session's manifest was taken. */
export function usedManifest(
  session: Pick<OpenSession, 'agents'>,
  turn: Pick<ActiveTurn, 'manifest' | 'agents'>,
  agentId: string,
): Manifest | undefined {
  return (turn.manifest === null ? session.agents : turn.agents)?.[agentId]?.manifest;
}

/** The model that a thread asks; an agent used as a tool that names none has that of the turn. */
export function modelOf(
  session: Pick<OpenSession, 'manifest' | 'agents'>,
  turn: ActiveTurn,
  thread: Thread,
): ModelSelection | null {
  return thread.agent === null ? turn.model : (manifestOf(session, turn, thread).model ?? turn.model);
}

/** Names the agent in an event of an agent used as a tool. */
export function byAgent(thread: { readonly agent: AgentRef | null }): { agent?: AgentRef } {
  return thread.agent === null ? {} : { agent: thread.agent };
}

/** The id of the next action, interaction or delegation of a turn. */
export function nextId(prefix: 'ac' | 'in' | 'dg', turn: ActiveTurn): string {
  return deriveId(prefix, turn.turnId, turn.made + 1);
}
