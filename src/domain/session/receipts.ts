/**
 * What earlier commands of a session were answered, by idempotency key. The newest thousand are kept whole; of older
 * ones a Bloom filter remembers that they were there, so that only a command whose key may be among them asks the read
 * model (design, section 3). Chunks keep `evolve` pure and cheap: adding copies at most one chunk, not a thousand entries.
 */
export interface Receipt {
  /** Who sent it and its idempotencyKey, see `receiptKey`. */
  readonly key: string;
  /** SHA-256 of the canonical body without requestId. */
  readonly hash: string;
  readonly requestId: string;
  readonly turnId: string | null;
  /** Where the command's own event stands: position of its commit and index in it. */
  readonly position: number;
  readonly index: number;
}

export interface ReceiptBook {
  readonly chunks: readonly (readonly Receipt[])[];
  /** Bloom filter over the keys that left the chunks, 32-bit words; null while none has. */
  readonly evicted: readonly number[] | null;
  /** Position of the newest receipt that left; 0 while none has. */
  readonly evictedUpTo: number;
}

export const RECEIPTS_KEPT = 1000;
const CHUNK = 50;
/** 64 KiB: of a session's keys, 1 in 200 is suspected wrongly at 50,000 commands, 1 in 10 at 100,000. */
const BLOOM_WORDS = 16_384;
const BLOOM_HASHES = 6;

export const emptyReceipts: ReceiptBook = { chunks: [], evicted: null, evictedUpTo: 0 };

/** One key space for each subject, and one for the credential that acts for nobody (wire contract, section 6). */
export function receiptKey(subject: string | null, idempotencyKey: string): string {
  return subject === null ? `-:${idempotencyKey}` : `s:${subject}:${idempotencyKey}`;
}

export function executorReceiptKey(agentId: string, idempotencyKey: string): string {
  return `x:${agentId}:${idempotencyKey}`;
}

export function findReceipt(book: ReceiptBook, key: string): Receipt | undefined {
  for (let c = book.chunks.length - 1; c >= 0; c--) {
    const found = book.chunks[c]?.find((receipt) => receipt.key === key);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Whether the key may belong to a receipt that is no longer kept: false is certain, true is not. */
export function mayBeEvicted(book: ReceiptBook, key: string): boolean {
  if (book.evicted === null) return false;
  const words = book.evicted;
  return bits(key).every((bit) => ((words[bit >>> 5] ?? 0) & (1 << (bit & 31))) !== 0);
}

export function addReceipt(book: ReceiptBook, receipt: Receipt): ReceiptBook {
  const last = book.chunks.at(-1);
  if (last !== undefined && last.length < CHUNK) {
    return { ...book, chunks: [...book.chunks.slice(0, -1), [...last, receipt]] };
  }
  const chunks = [...book.chunks, [receipt]];
  if (chunks.length * CHUNK <= RECEIPTS_KEPT + CHUNK) return { ...book, chunks };
  const [oldest = [], ...kept] = chunks;
  const words = [...(book.evicted ?? Array.from({ length: BLOOM_WORDS }, () => 0))];
  for (const gone of oldest) {
    for (const bit of bits(gone.key)) words[bit >>> 5] = ((words[bit >>> 5] ?? 0) | (1 << (bit & 31))) >>> 0;
  }
  return { chunks: kept, evicted: words, evictedUpTo: oldest.at(-1)?.position ?? book.evictedUpTo };
}

/** Double hashing over two FNV-1a runs: no cryptography is needed, a false positive costs one look-up. */
function bits(key: string): number[] {
  const a = fnv1a(key, 0x811c9dc5);
  const b = fnv1a(key, 0x01000193) | 1;
  return Array.from({ length: BLOOM_HASHES }, (_, i) => ((a + Math.imul(i, b)) >>> 0) % (BLOOM_WORDS * 32));
}

function fnv1a(text: string, seed: number): number {
  let hash = seed;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  hash ^= hash >>> 15;
  return hash >>> 0;
}
