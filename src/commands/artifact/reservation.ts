import { createHash } from 'node:crypto';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideRenew, decideReserve, fileTooLarge } from '../../domain/quota/decide.ts';
import type { ArtifactLimits } from '../../domain/quota/decide.ts';
import { bytesPassed } from '../../lib/passing-bytes.ts';
import type { CommitMeta } from '../repository.ts';
import { expiryOf, quotaRef } from './deps.ts';
import type { ArtifactDeps } from './deps.ts';

/** Ends an upload that exceeds a limit, or whose reservation is gone, from inside its stream. */
export class UploadRefusedError extends Error {
  readonly rejection: Rejection;

  constructor(rejection: Rejection) {
    super(rejection.message);
    this.rejection = rejection;
  }
}

/** The sender disconnected, fell silent, or sent something other than it had announced. */
export class UploadBrokenError extends Error {}

/** What an upload of unknown length reserves before its first byte; it doubles from there. */
const FIRST_STEP_BYTES = 1_048_576;

export interface UploadContext {
  readonly tenant: string;
  readonly uploadId: string;
  readonly artifactId: string;
  readonly meta: CommitMeta;
}

/**
 * Holds bytes of the tenant's total for one operation, from its first byte to its end: more bytes if it turns out
 * larger, and for longer if it takes longer.
 */
export class Reservation {
  readonly limits: ArtifactLimits;
  readonly #deps: ArtifactDeps;
  readonly #context: UploadContext;
  readonly #timer: NodeJS.Timeout;
  #bytes: number;

  private constructor(deps: ArtifactDeps, context: UploadContext, held: { limits: ArtifactLimits; bytes: number }) {
    this.#deps = deps;
    this.#context = context;
    this.limits = held.limits;
    this.#bytes = held.bytes;
    this.#timer = setInterval(() => void this.#renew(0), deps.operationMs / 3);
    this.#timer.unref();
  }

  /** @param bytes what is known to come; null: nothing is */
  static async reserve(
    deps: ArtifactDeps,
    context: UploadContext,
    bytes: number | null,
  ): Promise<Reservation | Rejection> {
    const { tenant, uploadId, artifactId, meta } = context;
    let reserved = 0;
    const outcome = await deps.loop.execute(deps.quotas, quotaRef(tenant), {
      ...meta,
      decide: (quota) => {
        if (bytes !== null) {
          reserved = bytes;
          return decideReserve(quota, { uploadId, artifactId, bytes, expiresAt: expiryOf(deps) }, deps.defaults);
        }
        // A first step that is too much may be more than the file needs: start with nothing, and find out.
        reserved = FIRST_STEP_BYTES;
        const command = { uploadId, artifactId, bytes: reserved, expiresAt: expiryOf(deps) };
        const decision = decideReserve(quota, command, deps.defaults);
        if (decision.kind !== 'rejected') return decision;
        reserved = 0;
        return decideReserve(quota, { ...command, bytes: 0 }, deps.defaults);
      },
    });
    return outcome.kind === 'rejected'
      ? outcome
      : new Reservation(deps, context, { limits: outcome.reply, bytes: reserved });
  }

  /**
   * Immediate when the bytes are held already. @throws UploadRefusedError when the file or the tenant would exceed its
   * limit
   */
  cover(bytes: number): Promise<void> | void {
    this.allow(bytes);
    if (bytes > this.#bytes) return this.#grow(bytes);
  }

  async #grow(bytes: number): Promise<void> {
    const step = Math.min(this.limits.fileBytes, Math.max(this.#bytes * 2, FIRST_STEP_BYTES));
    // Near the limit the step may be refused although the bytes themselves fit.
    if (step > bytes && (await this.#renew(step)) === null) return;
    await this.take(bytes);
  }

  /** @throws UploadRefusedError when a file of this size would exceed the limit of a file */
  allow(fileBytes: number): void {
    if (fileBytes > this.limits.fileBytes) throw new UploadRefusedError(fileTooLarge(this.limits.fileBytes));
  }

  /** Holds this many bytes and no more. @throws UploadRefusedError when the tenant would exceed its total */
  async take(bytes: number): Promise<void> {
    const refusal = bytes > this.#bytes ? await this.#renew(bytes) : null;
    if (refusal !== null) throw new UploadRefusedError(refusal);
  }

  /** Stops renewing; what becomes of the reservation is the caller's to settle. */
  end(): void {
    clearInterval(this.#timer);
  }

  async #renew(bytes: number): Promise<Rejection | null> {
    const { tenant, uploadId, meta } = this.#context;
    const deps = this.#deps;
    const renewing = deps.loop.execute(deps.quotas, quotaRef(tenant), {
      ...meta,
      decide: (quota) => decideRenew(quota, { uploadId, bytes, expiresAt: expiryOf(deps) }, deps.defaults),
    });
    if (bytes === 0) {
      // The next renewal makes up for a failed one, or the artifact's own history decides.
      await renewing.catch(() => undefined);
      return null;
    }
    const outcome = await renewing;
    if (outcome.kind === 'rejected') return outcome;
    this.#bytes = Math.max(this.#bytes, bytes);
    return null;
  }
}

/** Counts and digests a stream while it flows, one chunk at a time, and lets nothing beyond a limit through. */
export class ByteCounter {
  bytes = 0;
  readonly #hash = createHash('sha256');

  /** Lower-case hex; once, at the end. */
  digest(): string {
    return this.#hash.digest('hex');
  }

  /**
   * @param cover called with the number of bytes so far, before they are passed on; what it returns is waited for
   * @throws what `cover` throws; the signal's reason when it aborts
   */
  async *through(
    source: AsyncIterable<Uint8Array>,
    cover: (bytes: number) => Promise<void> | void,
    signal: AbortSignal,
  ): AsyncIterable<Uint8Array> {
    for await (const chunk of untilAborted(source, signal)) {
      const covering = cover(this.bytes + chunk.length);
      if (covering !== undefined) await covering;
      this.bytes += chunk.length;
      this.#hash.update(chunk);
      bytesPassed(chunk.length);
      yield chunk;
    }
  }
}

/** A stalled source would otherwise hold its reader for ever. */
async function* untilAborted(source: AsyncIterable<Uint8Array>, signal: AbortSignal): AsyncIterable<Uint8Array> {
  const chunks = source[Symbol.asyncIterator]();
  let give: ((reason: unknown) => void) | null = null;
  const onAbort = (): void => give?.(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    for (;;) {
      signal.throwIfAborted();
      // A promise per chunk: racing each against one long-lived promise would leak memory for each.
      const next = await new Promise<IteratorResult<Uint8Array>>((resolve, reject) => {
        give = reject;
        chunks.next().then(resolve, reject);
      });
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}
