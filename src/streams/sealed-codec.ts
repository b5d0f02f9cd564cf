import { hashOfCommit } from './chain.ts';
import type { Codec } from './codec.ts';
import { UndecodableCommitError } from './codec.ts';
import type { Commit } from './commit.ts';
import { isSealed, SealBrokenError, TenantErasedError } from './sealed-bytes.ts';
import type { Keyring } from './keyring.ts';
import { OwnCommits } from './own-commits.ts';
import type { AggregateRef } from './subjects.ts';

/** A commit of a tenant whose data key has been destroyed: it is as if it had never been. Readers step over it. */
export class ErasedCommitError extends Error {}

/**
 * Commits as the log holds them: sealed with their tenant's data key and bound to their aggregate. What was stored before
 * commits were sealed is read as it is.
 */
export interface CommitCodec {
  /** @throws TenantErasedError when nothing may be stored for this tenant any more */
  encode(ref: AggregateRef, commit: Commit): Promise<{ readonly bytes: Uint8Array; readonly hash: string }>;
  /** Whether the key of these bytes is at hand, so that `decode` can tell what they are. */
  isReady(bytes: Uint8Array): boolean;
  /** Asks for the key of these bytes. @throws UnavailableError (streams) */
  prepare(ref: AggregateRef, bytes: Uint8Array): Promise<void>;
  /** @throws ErasedCommitError; UndecodableCommitError, also when the key of a living tenant is missing */
  decode(ref: AggregateRef, bytes: Uint8Array): { readonly commit: Commit; readonly hash: string };
  /** The commit as it was encoded, byte for byte. @throws as `decode` */
  open(ref: AggregateRef, bytes: Uint8Array): Uint8Array;
}

export function sealedCodec(codec: Codec, keyring: Keyring): CommitCodec {
  const own = new OwnCommits();
  // Erased means erased in this process too.
  keyring.onErased((tenant) => own.forget(tenant));
  const open: CommitCodec['open'] = (ref, bytes) => {
    if (!isSealed(bytes)) return bytes;
    const plain = opened(keyring, ref, bytes);
    if (plain === 'erased') throw new ErasedCommitError(`a commit of the erased tenant ${ref.tenant}`);
    return plain;
  };
  return {
    encode: async (ref, commit) => {
      const plain = codec.encode(commit);
      const hash = hashOfCommit(plain);
      let bytes = keyring.seal(ref.tenant, commitContext(ref), plain);
      if (bytes === null) {
        await keyring.obtain(ref.tenant);
        bytes = keyring.seal(ref.tenant, commitContext(ref), plain);
      }
      if (bytes === null) throw new TenantErasedError(`the tenant ${ref.tenant} has been erased`);
      const isCurrent = commit.events.every(({ type, v }) => v === codec.versionOf(type));
      if (isCurrent) own.remember(ref, bytes, { commit, hash });
      return { bytes, hash };
    },
    isReady: (bytes) => !isSealed(bytes) || keyring.knows(bytes),
    prepare: async ({ tenant }, bytes) => {
      if (isSealed(bytes)) await keyring.fetch(tenant, bytes);
    },
    decode: (ref, bytes) => {
      const known = own.take(ref, bytes);
      if (known !== null) return { commit: known.commit, hash: known.hash };
      const plain = open(ref, bytes);
      const commit = codec.decode(plain);
      // Sealing is older than chaining, so no holder of the key wrote this.
      if (commit.prev !== undefined && !isSealed(bytes))
        throw new UndecodableCommitError('a chained commit is not sealed');
      return { commit, hash: hashOfCommit(plain) };
    },
    open,
  };
}

function opened(keyring: Keyring, ref: AggregateRef, bytes: Uint8Array): Buffer | 'erased' {
  try {
    return keyring.open(ref.tenant, commitContext(ref), bytes);
  } catch (cause) {
    if (cause instanceof SealBrokenError) throw new UndecodableCommitError(cause.message, { cause });
    throw cause;
  }
}

/** The whole place: a commit that was moved to another aggregate does not open. */
export function commitContext(ref: AggregateRef): string {
  return `commit ${ref.kind} ${ref.id}`;
}
