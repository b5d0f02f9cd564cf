import { DEFAULT_MAX_STEPS, DEFAULT_MAX_TURN_SECONDS } from '../agent/manifest.ts';
import type { Manifest, ModelSelection, UsedAgents } from '../agent/manifest.ts';
import type { Decision } from '../kernel/decision.ts';
import { jsonChars } from '../kernel/json-chars.ts';
import { optional, withoutNulls } from '../kernel/optional.ts';
import { reject } from '../kernel/rejection.ts';
import type { Rejection } from '../kernel/rejection.ts';
import * as process from '../turn/process.ts';
import type { TurnContext } from '../turn/context.ts';
import type { TurnPlan } from '../turn/events.ts';
import type { MessagePart, SessionEvent } from './events.ts';
import type { ForkRef } from './fork-events.ts';
import { draftOf } from './state.ts';
import type { OpenSession, SessionDraft, SessionOpening, SessionState } from './state.ts';

/**
 * PUT is repeatable: the same body is the same session, labels may change, other content is a conflict. Someone who acts
 * for a person (`actsFor`) learns of that person's sessions only.
 */
export function decideOpenSession(
  state: SessionState,
  command: SessionOpening,
  actsFor: string | null,
): Decision<SessionEvent, null> {
  if (state.status === 'absent') {
    const { vaultIds = [], ...opening } = command;
    const data = {
      ...opening,
      info: { ...command.info },
      labels: { ...command.labels },
      ...(vaultIds.length === 0 ? {} : { vaultIds: [...vaultIds] }),
    };
    return { kind: 'accepted', events: [{ type: 'session.created', data }], reply: null };
  }
  if (actsFor !== null && state.subject !== actsFor) return reject('not_found', 'No such session.');
  if (state.bodyHash !== command.bodyHash) {
    return reject(
      'conflict',
      'A session with this id exists with other content. Use another id, or send the same body.',
    );
  }
  const vaultIds = sameVaults(state.vaultIds, command.vaultIds) ? {} : { vaultIds: [...(command.vaultIds ?? [])] };
  const isSame = sameLabels(state.labels, command.labels) && !('vaultIds' in vaultIds);
  if (isSame) return { kind: 'unchanged', reply: null };
  const events: SessionEvent[] = [{ type: 'session.updated', data: { labels: { ...command.labels }, ...vaultIds } }];
  return { kind: 'accepted', events, reply: null };
}

/** In the same order: of two credentials that apply to one address, the one in the first vault is used. */
export function sameVaults(a: readonly string[] = [], b: readonly string[] = []): boolean {
  return a.length === b.length && a.every((id, n) => id === b[n]);
}

function sameLabels(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

/** Forks that a refusal names. */
const FORKS_NAMED = 20;

/**
 * Everything of the session is deleted; an active turn would lose its end, a fork part of its history. The reply names
 * the parent that is to forget the session, if it was a fork.
 */
export function decideDeleteSession(state: SessionState): Decision<SessionEvent, ForkRef | null> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  if (state.turn !== null) {
    const message = 'A turn is active. Wait for its end or cancel it, then delete the session.';
    return reject('session_busy', message, { activeTurnId: state.turn.turnId });
  }
  const forks = Object.keys(state.forks);
  if (forks.length > 0) {
    const message = 'Forks of the session read its history. Delete them first; the first ones are in details.forks.';
    return reject('conflict', message, { details: { forks: forks.slice(0, FORKS_NAMED), count: forks.length } });
  }
  const parent = state.origin?.parent ?? null;
  return { kind: 'accepted', events: [{ type: 'session.deleted', data: {} }], reply: parent };
}

export interface MessageCommand {
  readonly requestId: string;
  readonly subject: string | null;
  readonly content?: string | undefined;
  readonly parts?: readonly MessagePart[] | undefined;
  readonly whenBusy?: 'refuse' | 'queue' | 'interrupt' | undefined;
  readonly manifest?: Manifest | undefined;
  /** The sender's trace context, well-formed. */
  readonly traceparent?: string | undefined;
}

export interface CancelCommand {
  readonly requestId: string;
  readonly subject: string | null;
  readonly turnId?: string | undefined;
  readonly reason?: string | undefined;
  /** Also cancels the turns that wait in the queue. */
  readonly withQueue?: boolean;
}

/** What the edge supplies: time, a fresh turn id, and the worker of this process that would run the turn, if it can. */
export interface MessageContext extends TurnContext {
  readonly newTurnId: string;
  /** The tenant's selection; null: there is none. */
  readonly tenantModel: ModelSelection | null;
  /** Agents that the message's own manifest uses as tools. */
  readonly agents?: UsedAgents | undefined;
}

/** The id of the turn that a command concerns; the command's own event is the first of the commit. */
export interface CommandReply {
  readonly turnId: string | null;
  /** Whether the worker of this process now holds the session's turn. */
  readonly claimed: boolean;
  /** The command was accepted before, under another idempotency key: the receipt that it got then. */
  readonly first?: { readonly requestId: string; readonly turnId: string | null; readonly position: number };
}

/** Messages that may wait for their turns. */
export const QUEUE_MAX = 100;
/**
 * As JSON they have so many characters together at most, with the manifests that they brought, unless one waits alone:
 * every process that loads the session holds all of them, and where none of their turns can run, all end in one commit.
 */
export const QUEUE_CHARS_MAX = 1_048_576;

/**
 * A message starts a turn. Where the accepting process can run the turn itself, the claim and the first model request
 * are part of the same commit, which saves two round trips to the log (docs/decisions/0004).
 */
export function decideMessage(
  state: SessionState,
  command: MessageCommand,
  context: MessageContext,
): Decision<SessionEvent, CommandReply> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const draft = draftOf(state, context.nowMs);
  const turnId = context.newTurnId;
  const plan = planOf(state, command.manifest ?? null, context);
  draft.add({ type: 'command.message', data: messageData(command, turnId) });
  const { maxTurnSeconds, ...started } = plan;
  if (state.turn !== null) {
    if (command.whenBusy === 'queue') {
      draft.add({ type: 'turn.queued', data: plan });
      return queueFull(draft) ?? accepted(draft, turnId, context);
    }
    if (command.whenBusy !== 'interrupt') return busy(state.turn.turnId);
    process.interrupt(draft);
  }
  draft.add({
    type: 'turn.started',
    data: { ...started, deadlineAt: process.deadlineOf(context.nowMs, maxTurnSeconds) },
  });
  process.advance(draft, context);
  return accepted(draft, turnId, context);
}

function busy(activeTurnId: string): Decision<SessionEvent, CommandReply> {
  const message =
    'A turn is active. Wait for its end, cancel it, or send the message with whenBusy "queue" or "interrupt".';
  return reject('session_busy', message, { activeTurnId });
}

/** Null: what waits now may wait. */
function queueFull({ state }: SessionDraft): Rejection | null {
  const queue = state.status === 'open' ? state.queue : [];
  const refused = (why: string): Rejection =>
    reject('limit_exceeded', `${why} Wait until one of these has ended.`, { details: { limit: 'queue' } });
  if (queue.length > QUEUE_MAX) return refused(`${QUEUE_MAX} messages wait for their turns.`);
  const chars = queue.reduce((sum, message) => sum + jsonChars(message), 0);
  if (queue.length === 1 || chars <= QUEUE_CHARS_MAX) return null;
  return refused(
    `With this one, the messages that wait for their turns would have over ${QUEUE_CHARS_MAX} characters.`,
  );
}

/** What was decided, with what the deciding process has to know. */
export function accepted(
  draft: SessionDraft,
  turnId: string | null,
  { workerId }: TurnContext,
): Decision<SessionEvent, CommandReply> {
  const { state, events } = draft;
  const holder = state.status === 'open' ? state.turn?.claim?.workerId : undefined;
  return { kind: 'accepted', events, reply: { turnId, claimed: workerId !== null && holder === workerId } };
}

function messageData(
  command: MessageCommand,
  turnId: string,
): Extract<SessionEvent, { type: 'command.message' }>['data'] {
  const { requestId, subject, content, parts, whenBusy, manifest, traceparent } = command;
  return {
    turnId,
    requestId,
    ...withoutNulls({ subject }),
    ...optional({ content, parts: parts === undefined ? undefined : [...parts], traceparent, whenBusy, manifest }),
  };
}

/** What a turn starts with; `override` is the manifest that its message brought. */
export function planOf(session: OpenSession, override: Manifest | null, context: MessageContext): TurnPlan {
  const manifest = override ?? session.manifest;
  const { maxSteps, maxTurnSeconds, maxCostUsd } = manifest.limits ?? {};
  return {
    turnId: context.newTurnId,
    maxTurnSeconds: maxTurnSeconds ?? DEFAULT_MAX_TURN_SECONDS,
    maxSteps: maxSteps ?? DEFAULT_MAX_STEPS,
    ...optional({ maxCostUsd }),
    model: manifest.model ?? context.tenantModel,
    manifest: override,
    ...(override === null || context.agents === undefined ? {} : { agents: context.agents }),
  };
}

/**
 * A cancel is always accepted; with nothing to cancel, or a turn that is no longer active, only the command is
 * recorded. A turn that waits in the queue can be cancelled by its id.
 */
export function decideCancel(
  state: SessionState,
  command: CancelCommand,
  context: TurnContext,
): Decision<SessionEvent, CommandReply> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const turnId = cancelled(state, command.turnId);
  const draft = draftOf(state, context.nowMs);
  draft.add({
    type: 'command.cancel',
    data: {
      turnId,
      requestId: command.requestId,
      ...withoutNulls({ subject: command.subject }),
      ...optional({ namedTurnId: command.turnId, reason: command.reason }),
    },
  });
  const waiting = command.withQueue === true ? state.queue : [];
  for (const { turnId: next } of waiting) process.cancelQueued(draft, next, command.reason);
  if (turnId === null) return accepted(draft, null, context);
  if (turnId === state.turn?.turnId) process.cancel(draft, command.reason, context);
  else process.cancelQueued(draft, turnId, command.reason);
  return accepted(draft, turnId, context);
}

/** The turn that a cancel ends: the active one, or the one that it names, active or queued; null: neither exists. */
function cancelled({ turn, queue }: OpenSession, named: string | undefined): string | null {
  const active = turn?.turnId ?? null;
  if (named === undefined || named === active) return active;
  return queue.some(({ turnId }) => turnId === named) ? named : null;
}

/** Runs one step of the turn process on a session and returns what is to be recorded. */
export function decideTurn<R>(
  state: SessionState,
  nowMs: number,
  step: (draft: SessionDraft) => R,
): Decision<SessionEvent, R> {
  const draft = draftOf(state, nowMs);
  const reply = step(draft);
  return draft.events.length === 0 ? { kind: 'unchanged', reply } : { kind: 'accepted', events: draft.events, reply };
}
