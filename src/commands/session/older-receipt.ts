import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { findReceipt } from '../../domain/session/receipts.ts';
import type { Receipt } from '../../domain/session/receipts.ts';
import type { SendCommandDeps, SendCommandInput } from './command-handler.ts';

/** Searches the receipts that the fold no longer has whole. A new key usually costs no round trip. */
export async function findOlder(
  parts: Pick<SendCommandDeps, 'sessions' | 'older'>,
  { ref, outOfReach }: Pick<SendCommandInput, 'ref' | 'outOfReach'>,
  key: string,
): Promise<{ receipt: Receipt | null; lookedUpTo: number }> {
  const { state } = await parts.sessions.load(ref);
  if (state.status === 'absent' || outOfReach(state, true) !== null) return { receipt: null, lookedUpTo: 0 };
  const { receipts } = state;
  const lookedUpTo = receipts.evictedUpTo;
  if (lookedUpTo === 0 || findReceipt(receipts, key) !== undefined) return { receipt: null, lookedUpTo };
  const receipt = await parts.older.find(ref, receipts, key);
  if (receipt === null) return { receipt, lookedUpTo };
  // Nothing is recorded, so nothing else shows that the session has been deleted elsewhere, or replaced.
  const { state: newest } = await parts.sessions.refresh(ref);
  const isOfThis =
    newest.status === 'open' && outOfReach(newest, true) === null && receipt.position >= newest.createdPosition;
  return isOfThis ? { receipt, lookedUpTo } : { receipt: null, lookedUpTo: 0 };
}

/** The refusal of a key that was used with another body. */
export function used(): Rejection {
  return reject(
    'idempotency_conflict',
    'This idempotencyKey was used with another body. Use a new key for a new command.',
  );
}
