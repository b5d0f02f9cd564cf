import type { FollowedCommit } from '../streams/event-store.ts';
import type { ProjectedCommit } from '../streams/row-seals.ts';

/** What there is to apply of a batch: of what is erased only its place remains. @throws for what cannot be decoded */
export function projected(batch: readonly FollowedCommit[]): ProjectedCommit[] {
  return batch.flatMap((followed) => {
    if (followed.kind === 'undecodable') throw followed.error;
    return followed.kind === 'commit' ? [{ ...followed.stored, bytes: followed.bytes }] : [];
  });
}
