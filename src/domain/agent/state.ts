import type { EventMeta } from '../kernel/decision.ts';
import type { AgentEvent } from './events.ts';
import type { Manifest } from './manifest.ts';

/** absent → saved ⇄ archived. A saved agent opens sessions; an archived one only lets its old ones continue. */
export type AgentState =
  | { readonly status: 'absent' }
  | {
      readonly status: 'saved' | 'archived';
      readonly agentId: string;
      readonly version: number;
      readonly manifestHash: string;
      readonly implementationVersion: string | null;
      readonly manifest: Manifest;
    };

export const initialAgent: AgentState = { status: 'absent' };

export function evolveAgent(state: AgentState, event: AgentEvent, _meta: EventMeta): AgentState {
  switch (event.type) {
    case 'agent.saved':
      return { status: 'saved', ...event.data };
    case 'agent.archived':
      return state.status === 'absent' ? state : { ...state, status: 'archived' };
  }
}
