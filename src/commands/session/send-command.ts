import type { ModelSelection } from '../../domain/agent/manifest.ts';
import type { Decision } from '../../domain/kernel/decision.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideActionResult, decideAnswer, decideCancel, decideMessage } from '../../domain/session/decide.ts';
import type { CancelCommand, CommandReply, MessageCommand } from '../../domain/session/decide.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import { findReceipt, mayBeEvicted, receiptKey } from '../../domain/session/receipts.ts';
import type { Receipt } from '../../domain/session/receipts.ts';
import type { SessionState } from '../../domain/session/state.ts';
import type { Clock } from '../../lib/clock.ts';
import { newId } from '../../lib/ids.ts';
import { encodeCursor } from '../../streams/cursor.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop } from '../execute.ts';
import type { Repository } from '../repository.ts';
import type { TurnPlace, TurnRunner } from './turn-runner.ts';

export type SessionCommand =
  | ({ readonly type: 'message' } & MessageCommand)
  | ({ readonly type: 'cancel' } & CancelCommand)
  | {
      readonly type: 'approve' | 'respond' | 'action_result';
      readonly requestId: string;
      readonly subject: string | null;
    };

export interface SendCommandInput {
  readonly ref: AggregateRef;
  readonly command: SessionCommand;
  readonly idempotencyKey: string;
  /** SHA-256 of the canonical body without requestId. */
  readonly bodyHash: string;
  readonly actor: string;
  /** Why the session is out of the caller's reach; null: it is not. */
  readonly outOfReach: (session: { readonly subject: string | null; readonly agentId: string }) => Rejection | null;
}

export interface CommandAccepted {
  readonly kind: 'done';
  readonly turnId: string | null;
  readonly cursor: string;
  /** The first sender's, also when a repetition named another. */
  readonly requestId: string;
}

/** Receipts that have left the folded state, from the read model. */
export interface OlderReceipts {
  /** @throws when the read model is away or has not reached `upTo`: whether the key was used cannot be told then */
  find(ref: AggregateRef, key: string, upTo: number): Promise<Receipt | null>;
}

export interface SendCommandParts {
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly older: OlderReceipts;
  /** Whether the tenant takes no new message because it is about to be deleted. */
  readonly isDraining: (tenantId: string) => boolean;
  /** The tenant's selection, for turns whose manifest names no model; null: there is none. */
  readonly tenantModel: (tenantId: string) => ModelSelection | null;
  readonly runner: TurnRunner | null;
  readonly clock: Clock;
}

type Reply = CommandReply & { readonly first: Receipt | null };

/** Accepts a command on a session: replays what was accepted before, else decides and records (wire contract, 6). */
export async function sendCommand(
  parts: SendCommandParts,
  input: SendCommandInput,
): Promise<CommandAccepted | Rejection> {
  const { ref, command, bodyHash } = input;
  const key = receiptKey(command.subject, input.idempotencyKey);
  for (;;) {
    const { receipt, lookedUpTo } = await findOlder(parts, input, key);
    if (receipt !== null) return receipt.hash === bodyHash ? accepted(parts, ref, receipt) : used();
    const outcome = await record(parts, input, { key, lookedUpTo });
    if (outcome !== 'look again') return outcome;
  }
}

async function record(
  parts: SendCommandParts,
  input: SendCommandInput,
  context: Pick<DecideContext, 'key' | 'lookedUpTo'>,
): Promise<CommandAccepted | Rejection | 'look again'> {
  const { ref, command, bodyHash: hash } = input;
  const { key } = context;
  const place = command.type === 'message' ? (parts.runner?.reserve() ?? null) : null;
  try {
    const outcome = await parts.loop.execute<SessionState, SessionEvent, Reply>(parts.sessions, ref, {
      actor: input.actor,
      causation: command.requestId,
      decide: (state) => decide(state, { ...context, parts, input, place }),
      receipt: ({ turnId }) => ({ key, hash, requestId: command.requestId, turnId }),
    });
    if (outcome.kind === 'rejected') return outcome;
    if (outcome.position === null) {
      return outcome.reply.first === null ? 'look again' : accepted(parts, ref, outcome.reply.first);
    }
    place?.run(ref);
    const receipt = { requestId: command.requestId, turnId: outcome.reply.turnId, position: outcome.position };
    return accepted(parts, ref, receipt);
  } finally {
    place?.free();
  }
}

interface DecideContext {
  readonly parts: SendCommandParts;
  readonly input: SendCommandInput;
  readonly key: string;
  /** Receipts that had left the fold up to here have been looked up. */
  readonly lookedUpTo: number;
  readonly place: TurnPlace | null;
}

/** The order of the contract: existence, idempotent replay, state. */
function decide(
  state: SessionState,
  { parts, input, key, lookedUpTo, place }: DecideContext,
): Decision<SessionEvent, Reply> {
  const { command, bodyHash, outOfReach } = input;
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const refusal = outOfReach(state);
  if (refusal !== null) return refusal;
  const first = findReceipt(state.receipts, key);
  if (first !== undefined)
    return first.hash === bodyHash ? { kind: 'unchanged', reply: { turnId: first.turnId, first } } : used();
  // The look-up was made on an older fold, and receipts have left since: this key's may be one of them.
  if (state.receipts.evictedUpTo > lookedUpTo && mayBeEvicted(state.receipts, key))
    return { kind: 'unchanged', reply: { turnId: null, first: null } };
  if (command.type === 'message' && parts.isDraining(input.ref.tenant)) return draining();
  const decision = decideNew(state, command, {
    nowMs: parts.clock(),
    workerId: place?.workerId ?? null,
    tenantModel: parts.tenantModel(input.ref.tenant),
  });
  return decision.kind === 'rejected' ? decision : { ...decision, reply: { ...decision.reply, first: null } };
}

function decideNew(
  state: SessionState,
  command: SessionCommand,
  context: { nowMs: number; workerId: string | null; tenantModel: ModelSelection | null },
): Decision<SessionEvent, CommandReply> {
  switch (command.type) {
    case 'message':
      return decideMessage(state, command, { ...context, newTurnId: newId('tu'), jitter: Math.random() });
    case 'cancel':
      return decideCancel(state, command, context.nowMs);
    case 'approve':
    case 'respond':
      return decideAnswer(state);
    case 'action_result':
      return decideActionResult(state);
  }
}

/** Only a key that the session's filter does not rule out costs a look-up. */
async function findOlder(
  parts: SendCommandParts,
  { ref, outOfReach }: SendCommandInput,
  key: string,
): Promise<{ receipt: Receipt | null; lookedUpTo: number }> {
  const { state } = await parts.sessions.load(ref);
  if (state.status === 'absent' || outOfReach(state) !== null) return { receipt: null, lookedUpTo: 0 };
  const { evictedUpTo: lookedUpTo } = state.receipts;
  if (findReceipt(state.receipts, key) !== undefined || !mayBeEvicted(state.receipts, key))
    return { receipt: null, lookedUpTo };
  return { receipt: await parts.older.find(ref, key, lookedUpTo), lookedUpTo };
}

function accepted(
  parts: SendCommandParts,
  ref: AggregateRef,
  receipt: Pick<Receipt, 'requestId' | 'turnId' | 'position'>,
): CommandAccepted {
  const cursor = encodeCursor(ref, { shard: parts.sessions.store.shardOf(ref), position: receipt.position, index: 0 });
  return { kind: 'done', turnId: receipt.turnId, cursor, requestId: receipt.requestId };
}

function draining(): Rejection {
  return reject('tenant_draining', 'The tenant is about to be deleted and takes no new message.');
}

function used(): Rejection {
  return reject(
    'idempotency_conflict',
    'This idempotencyKey was used with another body. Use a new key for a new command.',
  );
}
