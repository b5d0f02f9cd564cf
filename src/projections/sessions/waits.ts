import { optional, withoutNulls } from '../../domain/kernel/optional.ts';
import type { HookPoint } from '../../domain/agent/manifest.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { TurnStatus } from '../../domain/turn/rest.ts';
import type { ActiveTurn } from '../../domain/turn/state.ts';

/** Something that a session waits for, with what is needed to answer it. */
export interface Wait {
  readonly kind: 'interaction' | 'action' | 'effect';
  readonly id: string;
  readonly turnId: string;
  readonly agentId?: string;
  readonly interactionKind?: 'approval' | 'question';
  readonly toolName?: string;
  readonly hook?: HookPoint;
  readonly prompt?: string;
  readonly budgetId?: string;
}

/** The same rule as the turn's own (domain/turn/rest.ts), on what a reader can see of it. */
export function statusBy(waits: readonly Wait[], busy: boolean): TurnStatus {
  if (waits.some(({ kind }) => kind === 'effect')) return 'uncertain';
  if (waits.some(({ kind }) => kind === 'interaction')) return 'paused';
  return busy ? 'running' : 'waiting';
}

/** What a session waits for after an event of its active turn; the same list when that changes nothing. */
export function evolveWaits(waits: readonly Wait[], event: SessionEvent): readonly Wait[] {
  switch (event.type) {
    case 'action.pending': {
      const { actionId: id, turnId, agentId, toolName, hook } = event.data;
      return put(waits, { kind: 'action', id, turnId, agentId, ...optional({ toolName, hook }) });
    }
    case 'action.uncertain': {
      const known = waits.find(({ id }) => id === event.data.actionId);
      return known === undefined ? waits : put(waits, { ...known, kind: 'effect' });
    }
    case 'interaction.opened': {
      const { interactionId: id, turnId, agentId, kind: interactionKind, actionId } = event.data;
      const { toolName, prompt, budgetId } = event.data;
      const asked = optional({ toolName, prompt, budgetId });
      const wait = { kind: 'interaction', id, turnId, agentId, interactionKind, ...asked } as const;
      return put(actionId === undefined ? waits : drop(waits, actionId), wait);
    }
    case 'action.completed':
    case 'action.withdrawn':
      return drop(waits, event.data.actionId);
    case 'interaction.withdrawn':
    case 'command.approve':
    case 'command.respond':
      return drop(waits, event.data.interactionId);
    default:
      return waits;
  }
}

/** The same list from the fold. */
export function waitsOf(turn: ActiveTurn): readonly Wait[] {
  const { turnId, work } = turn;
  const actions = Object.values(work.actions).flatMap(({ actionId: id, agentId, toolName, hook, status }): Wait[] => {
    if (status === 'asked') return [];
    const kind = status === 'uncertain' ? 'effect' : 'action';
    return [{ kind, id, turnId, agentId, ...withoutNulls({ toolName, hook }) }];
  });
  const interactions = Object.values(work.interactions).map((interaction): Wait => {
    const { interactionId: id, agentId, kind: interactionKind, toolName, prompt, budgetId } = interaction;
    return { kind: 'interaction', id, turnId, agentId, interactionKind, ...optional({ toolName, prompt, budgetId }) };
  });
  return [...actions, ...interactions].toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

function put(waits: readonly Wait[], wait: Wait): readonly Wait[] {
  return [...drop(waits, wait.id), wait].toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

function drop(waits: readonly Wait[], id: string): readonly Wait[] {
  return waits.some((wait) => wait.id === id) ? waits.filter((wait) => wait.id !== id) : waits;
}
