import type { Decision } from '../../domain/kernel/decision.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { CommandReply } from '../../domain/session/decide.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import { findReceipt, mayHaveLeftSince } from '../../domain/session/receipts.ts';
import type { Receipt } from '../../domain/session/receipts.ts';
import type { SessionState } from '../../domain/session/state.ts';
import { encodeCursor } from '../../streams/cursor.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type {
  CommandAccepted,
  CommandHandler,
  Decide,
  SendCommandDeps,
  SendCommandInput,
  SessionCommand,
} from './command-handler.ts';
import { actionResultHandler } from './handlers/action-result.ts';
import { approveHandler } from './handlers/approve.ts';
import { cancelHandler } from './handlers/cancel.ts';
import { messageHandler } from './handlers/message.ts';
import { respondHandler } from './handlers/respond.ts';
import { retryHandler } from './handlers/retry.ts';
import { findOlder, used } from './older-receipt.ts';
import type { TurnPlace } from './turn-runner.ts';

type Reply = Omit<CommandReply, 'first'> & { readonly first: Required<CommandReply>['first'] | null };

function handlerOf(command: SessionCommand): CommandHandler {
  switch (command.type) {
    case 'message':
      return messageHandler(command);
    case 'cancel':
      return cancelHandler(command);
    case 'retry':
      return retryHandler(command);
    case 'approve':
      return approveHandler(command);
    case 'respond':
      return respondHandler(command);
    case 'action_result':
      return actionResultHandler(command);
  }
}

/** Accepts a command on a session: replays what was accepted before, else decides and records. */
export async function sendCommand(
  deps: SendCommandDeps,
  input: SendCommandInput,
): Promise<CommandAccepted | Rejection> {
  const { ref, bodyHash } = input;
  const handler = handlerOf(input.command);
  const key = handler.key(input.idempotencyKey);
  for (;;) {
    const { receipt, lookedUpTo } = await findOlder(deps, input, key);
    if (receipt !== null) {
      deps.runner?.adopt(ref);
      return receipt.hash === bodyHash ? accepted(deps, ref, receipt) : used();
    }
    const own = await handler.prepare(deps, input, key);
    if (typeof own !== 'function') return own;
    const outcome = await record(deps, input, { key, lookedUpTo, own, handler });
    if (outcome !== 'retry') return outcome;
  }
}

interface Prepared {
  readonly key: string;
  /** Receipts that left the fold up to here have been looked up. */
  readonly lookedUpTo: number;
  /** What this kind of command decides. */
  readonly own: Decide;
  readonly handler: CommandHandler;
}

async function record(
  deps: SendCommandDeps,
  input: SendCommandInput,
  prepared: Prepared,
): Promise<CommandAccepted | Rejection | 'retry'> {
  const { ref, command, bodyHash: hash } = input;
  const { key, handler } = prepared;
  const place = deps.runner?.reserve(ref.tenant) ?? null;
  try {
    const outcome = await deps.loop.execute<SessionState, SessionEvent, Reply>(deps.sessions, ref, {
      actor: input.actor,
      causation: command.requestId,
      decide: (state) => decide(state, { ...prepared, deps, input, place }),
      receipt: ({ turnId }) => ({ key, hash, requestId: command.requestId, turnId }),
    });
    // What was answered before, or is in the way, may be a turn whose claim could not be confirmed.
    if (outcome.kind === 'rejected' || outcome.position === null) {
      deps.runner?.adopt(ref);
      await handler.dropped?.(deps, input);
    }
    if (outcome.kind === 'rejected') return outcome;
    if (outcome.position === null) {
      return outcome.reply.first === null ? 'retry' : accepted(deps, ref, outcome.reply.first);
    }
    await handler.recorded?.();
    if (outcome.reply.claimed) place?.run(ref);
    const receipt = { requestId: command.requestId, turnId: outcome.reply.turnId, position: outcome.position };
    return accepted(deps, ref, receipt);
  } finally {
    place?.free();
  }
}

interface DecideContext extends Prepared {
  readonly deps: SendCommandDeps;
  readonly input: SendCommandInput;
  readonly place: TurnPlace | null;
}

/** The order that clients rely on: existence, idempotent replay, state. */
function decide(
  state: SessionState,
  { deps, input, key, lookedUpTo, own, place }: DecideContext,
): Decision<SessionEvent, Reply> {
  const { bodyHash, outOfReach } = input;
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const first = findReceipt(state.receipts, key);
  const refusal = outOfReach(state, first !== undefined);
  if (refusal !== null) return refusal;
  if (first !== undefined)
    return first.hash === bodyHash
      ? { kind: 'unchanged', reply: { turnId: first.turnId, claimed: false, first } }
      : used();
  // The look-up was made on an older fold, and receipts have left since: this key's may be one of them.
  if (mayHaveLeftSince(state.receipts, key, lookedUpTo))
    return { kind: 'unchanged', reply: { turnId: null, claimed: false, first: null } };
  // A command that was accepted before gets the same answer, even when what it needed is gone.
  const decision = own(state, {
    nowMs: deps.clock(),
    jitter: Math.random(),
    workerId: place?.workerId ?? null,
  });
  return decision.kind === 'rejected' ? decision : { ...decision, reply: { first: null, ...decision.reply } };
}

function accepted(
  deps: SendCommandDeps,
  ref: AggregateRef,
  receipt: Pick<Receipt, 'requestId' | 'turnId' | 'position'>,
): CommandAccepted {
  const cursor = encodeCursor(ref, { shard: deps.sessions.store.shardOf(ref), position: receipt.position, index: 0 });
  return { kind: 'done', turnId: receipt.turnId, cursor, requestId: receipt.requestId };
}
