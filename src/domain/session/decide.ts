import { DEFAULT_MAX_STEPS, DEFAULT_MAX_TURN_SECONDS } from '../agent/manifest.ts';
import type { Manifest, ModelSelection } from '../agent/manifest.ts';
import { Draft } from '../kernel/decision.ts';
import type { Decision } from '../kernel/decision.ts';
import { reject } from '../kernel/rejection.ts';
import { toTimestamp } from '../kernel/time.ts';
import * as process from '../turn/process.ts';
import type { TurnClock } from '../turn/process.ts';
import type { SessionEvent } from './events.ts';
import { evolveSession } from './state.ts';
import type { OpenSession, SessionOpening, SessionState } from './state.ts';

/**
 * PUT is repeatable: the same body is the same session, labels may change, other content is a conflict. Someone who acts
 * for a person (`actsFor`) is told of that person's sessions only.
 */
export function decideOpenSession(
  state: SessionState,
  command: SessionOpening,
  actsFor: string | null,
): Decision<SessionEvent, null> {
  if (state.status === 'absent') {
    const data = { ...command, info: { ...command.info }, labels: { ...command.labels } };
    return { kind: 'accepted', events: [{ type: 'session.created', data }], reply: null };
  }
  if (actsFor !== null && state.subject !== actsFor) return reject('not_found', 'No such session.');
  if (state.bodyHash !== command.bodyHash) {
    return reject(
      'conflict',
      'A session with this id exists with other content. Use another id, or send the same body.',
    );
  }
  if (sameLabels(state.labels, command.labels)) return { kind: 'unchanged', reply: null };
  const events: SessionEvent[] = [{ type: 'session.updated', data: { labels: { ...command.labels } } }];
  return { kind: 'accepted', events, reply: null };
}

function sameLabels(a: Readonly<Record<string, string>>, b: Readonly<Record<string, string>>): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

export interface MessageCommand {
  readonly requestId: string;
  readonly subject: string | null;
  readonly content?: string | undefined;
  readonly parts?: readonly { readonly type: 'text'; readonly text: string }[] | undefined;
  readonly whenBusy?: string | undefined;
  readonly manifest?: Manifest | undefined;
}

export interface CancelCommand {
  readonly requestId: string;
  readonly subject: string | null;
  readonly turnId?: string | undefined;
  readonly reason?: string | undefined;
}

/** What the edge supplies: time, a fresh turn id, and the worker of this process that would run the turn, if it can. */
export interface MessageContext extends TurnClock {
  readonly newTurnId: string;
  readonly workerId: string | null;
  /** The tenant's selection; null: there is none. */
  readonly tenantModel: ModelSelection | null;
}

/** The id of the turn that a command is about; its own event is the first of the commit. */
export interface CommandReply {
  readonly turnId: string | null;
}

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
  if (state.turn !== null) {
    return reject('session_busy', 'A turn is active. Wait for its end, or cancel it, then send the message again.', {
      activeTurnId: state.turn.turnId,
    });
  }
  const draft = new Draft<SessionState, SessionEvent>(state, evolveSession, toTimestamp(context.nowMs));
  const turnId = context.newTurnId;
  draft.add({ type: 'command.message', data: messageData(command, turnId) });
  draft.add({ type: 'turn.started', data: turnData(state, command.manifest ?? null, context) });
  if (context.workerId !== null) process.claim(draft, context.workerId, context);
  return { kind: 'accepted', events: draft.events, reply: { turnId } };
}

function messageData(
  command: MessageCommand,
  turnId: string,
): Extract<SessionEvent, { type: 'command.message' }>['data'] {
  const { requestId, subject, content, parts, whenBusy, manifest } = command;
  return {
    turnId,
    requestId,
    ...(subject === null ? {} : { subject }),
    ...(content === undefined ? {} : { content }),
    ...(parts === undefined ? {} : { parts: [...parts] }),
    ...(whenBusy === undefined ? {} : { whenBusy }),
    ...(manifest === undefined ? {} : { manifest }),
  };
}

function turnData(
  session: OpenSession,
  override: Manifest | null,
  context: MessageContext,
): Extract<SessionEvent, { type: 'turn.started' }>['data'] {
  const manifest = override ?? session.manifest;
  const seconds = manifest.limits?.maxTurnSeconds ?? DEFAULT_MAX_TURN_SECONDS;
  return {
    turnId: context.newTurnId,
    deadlineAt: toTimestamp(context.nowMs + seconds * 1000),
    maxSteps: manifest.limits?.maxSteps ?? DEFAULT_MAX_STEPS,
    instructions: manifest.instructions,
    model: manifest.model ?? context.tenantModel,
    manifest: override,
  };
}

/** A cancel is always accepted; with nothing to cancel, or a turn that is no longer active, only the command is written. */
export function decideCancel(
  state: SessionState,
  command: CancelCommand,
  nowMs: number,
): Decision<SessionEvent, CommandReply> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const hits = state.turn !== null && (command.turnId === undefined || command.turnId === state.turn.turnId);
  const turnId = hits ? (state.turn?.turnId ?? null) : null;
  const draft = new Draft<SessionState, SessionEvent>(state, evolveSession, toTimestamp(nowMs));
  draft.add({
    type: 'command.cancel',
    data: {
      turnId,
      requestId: command.requestId,
      ...(command.subject === null ? {} : { subject: command.subject }),
      ...(command.turnId === undefined ? {} : { namedTurnId: command.turnId }),
      ...(command.reason === undefined ? {} : { reason: command.reason }),
    },
  });
  if (hits) process.cancel(draft, command.reason);
  return { kind: 'accepted', events: draft.events, reply: { turnId } };
}

/** Approve and respond answer interactions; a session of this version never opens one. */
export function decideAnswer(state: SessionState): Decision<SessionEvent, CommandReply> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  return reject('session_not_waiting', 'The session does not wait for an answer.');
}

/** A result counts while its claim lives; a session of this version offers no action, so no claim does. */
export function decideActionResult(state: SessionState): Decision<SessionEvent, CommandReply> {
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  return reject(
    'claim_stale',
    'The claim has expired or was superseded. Claim the action again if it is still pending.',
  );
}

/** Runs one step of the turn process on a session and returns what is to be recorded. */
export function decideTurn<R>(
  state: SessionState,
  nowMs: number,
  step: (draft: Draft<SessionState, SessionEvent>) => R,
): Decision<SessionEvent, R> {
  const draft = new Draft<SessionState, SessionEvent>(state, evolveSession, toTimestamp(nowMs));
  const reply = step(draft);
  return draft.events.length === 0 ? { kind: 'unchanged', reply } : { kind: 'accepted', events: draft.events, reply };
}
