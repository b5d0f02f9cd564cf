import { UnavailableError } from '../lib/unavailable.ts';
import type { CommitSource } from '../streams/event-store.ts';
import type { AggregateKind } from '../streams/subjects.ts';
import type { ProjectionProgress } from './progress.ts';

/** Whether what any node acknowledged before is in the rows: known after 2 s at the latest. @throws UnavailableError (streams) */
export async function reachedAll(
  { source, progress }: { readonly source: CommitSource; readonly progress: ProjectionProgress },
  schema: string,
  kind: AggregateKind,
): Promise<boolean> {
  const shards = Array.from({ length: source.shards }, (_, shard) => shard);
  const reached = await Promise.all(
    shards.map(async (shard) => progress.reach(schema, shard, await source.newest(shard, [kind]))),
  );
  return reached.every(Boolean);
}

export function behind(): UnavailableError {
  return new UnavailableError('database', 'the read models are behind the log');
}
