import type { AgentRef } from '../action/events.ts';
import type { Manifest, ModelChoice, ModelSelection, UsedAgents } from '../agent/manifest.ts';
import type { ActiveTurn } from './state.ts';
import type { Thread } from './thread.ts';

/* Which agent, manifest and model a thread follows: the message's own for this turn, else those of its session. */

interface Manifests {
  readonly manifest: Manifest;
  readonly agents?: UsedAgents | undefined;
}

/** The agent id of a thread. */
export function agentIdOf(session: { readonly agentId: string }, thread: Thread): string {
  return thread.agent?.id ?? session.agentId;
}

/** The manifest that a thread follows. */
export function manifestOf(
  session: Manifests,
  turn: Pick<ActiveTurn, 'manifest' | 'agents'>,
  thread: Thread,
): Manifest {
  const own = turn.manifest ?? session.manifest;
  return thread.agent === null ? own : (usedManifest(session, turn, thread.agent.id) ?? own);
}

/**
 * The manifest of an agent that is used as a tool; undefined: it did not exist when the session's manifest was taken.
 */
export function usedManifest(
  session: Pick<Manifests, 'agents'>,
  turn: Pick<ActiveTurn, 'manifest' | 'agents'>,
  agentId: string,
): Manifest | undefined {
  return (turn.manifest === null ? session.agents : turn.agents)?.[agentId]?.manifest;
}

/** The model that a thread calls: the first of its models, or the fallback that it has come to. */
export function modelOf(session: Manifests, turn: ActiveTurn, thread: Thread): ModelSelection | null {
  const choice = choiceOf(session, turn, thread);
  if (choice === null || thread.fallback === 0) return choice;
  return choice.fallbacks?.[thread.fallback - 1] ?? choice;
}

/** Whether another model can be asked in the place of the one that a thread calls. */
export function hasFallback(session: Manifests, turn: ActiveTurn, thread: Thread): boolean {
  return thread.fallback < (choiceOf(session, turn, thread)?.fallbacks?.length ?? 0);
}

/** An agent used as a tool that names no model uses the turn's. */
function choiceOf(session: Manifests, turn: ActiveTurn, thread: Thread): ModelChoice | null {
  return thread.agent === null ? turn.model : (manifestOf(session, turn, thread).model ?? turn.model);
}

/** Names the agent in an event of an agent used as a tool. */
export function byAgent({ agent }: { readonly agent: AgentRef | null }): { readonly agent?: AgentRef } {
  return agent === null ? {} : { agent };
}
