import type { HookPoint } from '../agent/manifest.ts';
import type { EventMeta } from '../kernel/decision.ts';
import type { ActionEvent, AgentRef, McpTarget, ShownInteraction } from './events.ts';

/** An executor's hold on an action: valid for one generation, until the executor's silence is recorded. */
export interface Claim {
  readonly claimId: string;
  readonly requestId: string;
  /** As far as the history knows; heartbeats extend it elsewhere. */
  readonly leaseExpiresAt: string;
  readonly leaseMs: number;
  /** When the tool's own timeout expires; null: it has none of its own. */
  readonly timeoutAt: string | null;
}

/**
 * Something that executors do for the turn.
 *
 *   pending → claimed → completed
 *     ↑         ├── asked (an interaction is open; the answer offers it again, one generation up)
 *     │         └── lease over: a hook is pending again, one generation up; a tool is uncertain
 *     └────── uncertain, answered with `retry`
 */
export interface Action {
  readonly actionId: string;
  readonly kind: 'tool' | 'hook';
  readonly agentId: string;
  readonly agent: AgentRef | null;
  readonly toolName: string | null;
  readonly hook: HookPoint | null;
  readonly callId: string;
  readonly input: unknown;
  readonly status: 'pending' | 'claimed' | 'asked' | 'uncertain';
  readonly generation: number;
  readonly claim: Claim | null;
  readonly resume: { readonly interactionId: string; readonly value?: unknown } | null;
  readonly createdAt: string;
}

/** Something that a person has to answer. */
export interface Interaction extends ShownInteraction {
  readonly agentId: string;
  readonly agent: AgentRef | null;
  readonly callId: string | null;
  readonly mcp?: McpTarget | undefined;
  readonly grants?: number | undefined;
}

/** The result that answered a claim. */
export interface Answered {
  readonly outcomeHash: string;
  readonly requestId: string;
  /** Of the commit that recorded it. */
  readonly position: number;
}

export interface OpenWork {
  readonly actions: Readonly<Record<string, Action>>;
  readonly interactions: Readonly<Record<string, Interaction>>;
  /** By claim, until the turn ends. */
  readonly answered: Readonly<Record<string, Answered>>;
}

export const NO_OPEN_WORK: OpenWork = { actions: {}, interactions: {}, answered: {} };

/** How long a claim stays valid without a sign of its executor, unless configured otherwise. */
export const LEASE_MS = 30_000;

/** Total: an event that cannot apply changes nothing. */
export function evolveOpenWork(work: OpenWork, event: ActionEvent, meta: EventMeta): OpenWork {
  switch (event.type) {
    case 'action.pending':
      return withAction(work, offered(work.actions[event.data.actionId], event.data, meta.at));
    case 'interaction.opened': {
      const { turnId: _, agent = null, callId = null, ...rest } = event.data;
      const interactions = { ...work.interactions, [rest.interactionId]: { ...rest, agent, callId } };
      return { ...asked(work, rest.actionId), interactions };
    }
    case 'interaction.withdrawn':
      return withoutInteraction(work, event.data.interactionId);
    case 'action.answered': {
      const { claimId, requestId, outcomeHash } = event.data;
      return {
        ...work,
        answered: { ...work.answered, [claimId]: { outcomeHash, requestId, position: meta.position } },
      };
    }
    case 'action.completed':
    case 'action.withdrawn':
      return { ...work, actions: without(work.actions, event.data.actionId) };
    case 'action.claimed':
    case 'action.extended':
    case 'action.uncertain':
      return evolveClaim(work, event);
  }
}

type ClaimEvent = Extract<ActionEvent, { type: 'action.claimed' | 'action.extended' | 'action.uncertain' }>;

function evolveClaim(work: OpenWork, event: ClaimEvent): OpenWork {
  const action = work.actions[event.data.actionId];
  if (action === undefined || action.generation !== event.data.generation) return work;
  switch (event.type) {
    case 'action.claimed': {
      const { claimId, requestId, leaseExpiresAt, leaseMs = LEASE_MS, timeoutAt = null } = event.data;
      return withAction(work, {
        ...action,
        status: 'claimed',
        claim: { claimId, requestId, leaseExpiresAt, leaseMs, timeoutAt },
      });
    }
    case 'action.extended': {
      if (action.claim === null) return work;
      return withAction(work, { ...action, claim: { ...action.claim, leaseExpiresAt: event.data.leaseExpiresAt } });
    }
    case 'action.uncertain':
      return withAction(work, { ...action, status: 'uncertain', claim: null });
  }
}

/** An answered interaction is closed; what follows from the answer is events of its own. */
export function withoutInteraction(work: OpenWork, interactionId: string): OpenWork {
  if (work.interactions[interactionId] === undefined) return work;
  return { ...work, interactions: without(work.interactions, interactionId) };
}

function offered(
  before: Action | undefined,
  data: Extract<ActionEvent, { type: 'action.pending' }>['data'],
  at: string,
): Action {
  const { turnId: _, agent = null, toolName = null, hook = null, resume = null, ...rest } = data;
  const createdAt = before?.createdAt ?? at;
  return { ...rest, agent, toolName, hook, resume, status: 'pending', claim: null, createdAt };
}

function asked(work: OpenWork, actionId: string | undefined): OpenWork {
  const action = actionId === undefined ? undefined : work.actions[actionId];
  return action === undefined ? work : withAction(work, { ...action, status: 'asked', claim: null });
}

function withAction(work: OpenWork, action: Action): OpenWork {
  return { ...work, actions: { ...work.actions, [action.actionId]: action } };
}

function without<V>(record: Readonly<Record<string, V>>, id: string): Readonly<Record<string, V>> {
  const { [id]: _gone, ...rest } = record;
  return rest;
}
