import { LEASE_MS } from '../action/state.ts';
import type { Action } from '../action/state.ts';
import type { HookPoint } from '../agent/manifest.ts';
import { optional, withoutNulls } from '../kernel/optional.ts';
import { toMs } from '../kernel/time.ts';
import { attendanceAfter, isAttended } from './attendance.ts';
import type { Attendance } from './attendance.ts';
import type { TurnEvent } from './events.ts';
import { uncertainCalls } from './mcp-calls.ts';
import { evolveSignIns } from './sign-ins.ts';
import type { AwaitedSignIn } from './sign-ins.ts';
import type { ActiveTurn } from './state.ts';

/*
 * What can be said about a turn without its threads: who attends to it, what it waits for, its status, and when
 * something is due. The dispatcher and the read models fold it from the log; the whole turn yields the same.
 */

/**
 * What has to be known about an open turn to make sure it continues: who runs it, whether a worker should, and when its
 * next time expires. A fold of the log like the turn itself, but small: one is kept for each open turn of a stream.
 */
export interface TurnSummary extends Attendance {
  readonly turnId: string;
  readonly deadlineAt: string;
  /** It waits for people, and its clock is stopped. */
  readonly paused: boolean;
  /** When the claims of its actions expire. */
  readonly claims: Readonly<Record<string, ClaimTimes>>;
  /** Absent: none. */
  readonly signIns?: readonly AwaitedSignIn[];
}

export interface ClaimTimes {
  readonly claimId: string;
  /** Unless its executor sends a heartbeat. */
  readonly leaseExpiresAt: string;
  readonly leaseMs: number;
  readonly timeoutAt: string | null;
}

/** The summary after an event; null: no open turn. Total. */
export function evolveSummary(summary: TurnSummary | null, event: TurnEvent): TurnSummary | null {
  if (event.type === 'turn.started') {
    const { turnId, deadlineAt } = event.data;
    return { turnId, workerId: null, wanted: true, restsUntil: null, deadlineAt, paused: false, claims: {} };
  }
  if (summary === null || event.data.turnId !== summary.turnId) return summary;
  switch (event.type) {
    case 'turn.completed':
    case 'turn.failed':
    case 'turn.cancelled':
      return null;
    case 'segment.claimed':
    case 'segment.released':
    case 'segment.wanted':
      return { ...summary, ...attendanceAfter(event) };
    case 'turn.paused':
    case 'turn.uncertain':
      return { ...summary, paused: true };
    case 'turn.extended':
      return { ...summary, paused: false, deadlineAt: event.data.deadlineAt };
    default:
      return withSignIns(evolveClaims(summary, event), event);
  }
}

function withSignIns(summary: TurnSummary, event: TurnEvent): TurnSummary {
  const before = summary.signIns ?? NO_SIGN_INS;
  const signIns = evolveSignIns(before, event);
  return signIns === before ? summary : { ...summary, signIns };
}

const NO_SIGN_INS: readonly AwaitedSignIn[] = [];

function evolveClaims(summary: TurnSummary, event: TurnEvent): TurnSummary {
  switch (event.type) {
    case 'action.claimed': {
      const { actionId, claimId, leaseExpiresAt, leaseMs = LEASE_MS, timeoutAt = null } = event.data;
      const claim: ClaimTimes = { claimId, leaseExpiresAt, leaseMs, timeoutAt };
      return { ...summary, claims: { ...summary.claims, [actionId]: claim } };
    }
    case 'action.extended': {
      const { actionId, leaseExpiresAt } = event.data;
      const claim = summary.claims[actionId];
      if (claim === undefined) return summary;
      return { ...summary, claims: { ...summary.claims, [actionId]: { ...claim, leaseExpiresAt } } };
    }
    case 'action.pending':
    case 'action.completed':
    case 'action.uncertain':
    case 'action.withdrawn':
      return withoutClaim(summary, event.data.actionId);
    case 'interaction.opened':
      return event.data.actionId === undefined ? summary : withoutClaim(summary, event.data.actionId);
    default:
      return summary;
  }
}

function withoutClaim(summary: TurnSummary, actionId: string): TurnSummary {
  if (summary.claims[actionId] === undefined) return summary;
  const { [actionId]: _over, ...claims } = summary.claims;
  return { ...summary, claims };
}

/**
 * When something of the turn is due without any event, ms; its worker enforces the deadline while it runs. @param
 * leaseOverMs when the lease of a claim expires, including what was heard from its executor; by default the history
 * alone
 */
export function dueMs(
  { claims, restsUntil, paused, deadlineAt }: TurnSummary,
  leaseOverMs: (claim: ClaimTimes) => number = ({ leaseExpiresAt }) => toMs(leaseExpiresAt),
): number {
  const times = Object.values(claims).flatMap((claim) =>
    claim.timeoutAt === null ? [leaseOverMs(claim)] : [leaseOverMs(claim), toMs(claim.timeoutAt)],
  );
  if (restsUntil !== null && restsUntil !== undefined) times.push(toMs(restsUntil));
  return Math.min(paused ? Number.POSITIVE_INFINITY : toMs(deadlineAt), ...times);
}

/** Something that a turn waits for, with what is needed to answer it. */
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
  readonly server?: string;
  readonly credentialId?: string;
}

/** What a turn waits for after one of its events, by id; the same list if nothing changed. */
export function evolveWaits(waits: readonly Wait[], event: TurnEvent): readonly Wait[] {
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
      const { toolName, prompt, budgetId, server, credentialId } = event.data;
      const asked = optional({ toolName, prompt, budgetId, server, credentialId });
      const wait = { kind: 'interaction', id, turnId, agentId, interactionKind, ...asked } as const;
      return put(actionId === undefined ? waits : drop(waits, actionId), wait);
    }
    case 'effect.uncertain': {
      const { kind, reason, effectId: id, turnId, agentId, toolName } = event.data;
      // With the reason `cancelled` nothing waits for it any longer.
      if (kind !== 'mcp' || reason !== 'lost') return waits;
      return put(waits, { kind: 'effect', id, turnId, ...optional({ agentId, toolName }) });
    }
    case 'mcp.withdrawn':
      return drop(waits, event.data.effectId);
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

/** The same list, from the whole turn. */
export function waitsOf(turn: ActiveTurn): readonly Wait[] {
  const { turnId, work } = turn;
  const actions = Object.values(work.actions).flatMap((action): Wait[] => {
    const { actionId: id, agentId, toolName, hook, status } = action;
    if (status === 'asked') return [];
    const kind = isUncertain(action) ? 'effect' : 'action';
    return [{ kind, id, turnId, agentId, ...withoutNulls({ toolName, hook }) }];
  });
  const interactions = Object.values(work.interactions).map((interaction): Wait => {
    const { interactionId: id, agentId, kind: interactionKind, toolName, prompt, budgetId } = interaction;
    const { server, credentialId } = interaction;
    const asked = optional({ toolName, prompt, budgetId, server, credentialId });
    return { kind: 'interaction', id, turnId, agentId, interactionKind, ...asked };
  });
  const inDoubt = uncertainCalls(turn).map(({ effectId: id, agentId, name: toolName }): Wait => ({
    kind: 'effect',
    id,
    turnId,
    agentId,
    toolName,
  }));
  return [...actions, ...interactions, ...inDoubt].toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

/** Whether it is not known if an effect happened. */
export function isUncertain({ status }: Action): boolean {
  return status === 'uncertain';
}

function put(waits: readonly Wait[], wait: Wait): readonly Wait[] {
  return [...drop(waits, wait.id), wait].toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

function drop(waits: readonly Wait[], id: string): readonly Wait[] {
  return waits.some((wait) => wait.id === id) ? waits.filter((wait) => wait.id !== id) : waits;
}

/** What a turn is doing. People come first: what only they can answer is shown at once. */
export const TURN_STATUSES = ['running', 'waiting', 'paused', 'uncertain'] as const;
export type TurnStatus = (typeof TURN_STATUSES)[number];

/** @param attended whether a worker runs the turn, or is to */
export function statusBy(waits: readonly Wait[], attended: boolean): TurnStatus {
  if (waits.some(({ kind }) => kind === 'effect')) return 'uncertain';
  if (waits.some(({ kind }) => kind === 'interaction')) return 'paused';
  return attended ? 'running' : 'waiting';
}

export function statusOf(turn: ActiveTurn): TurnStatus {
  const { wanted, restsUntil, claim } = turn;
  return statusBy(waitsOf(turn), isAttended({ workerId: claim?.workerId ?? null, wanted, restsUntil }));
}
