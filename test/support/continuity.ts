import { Continuity } from '#src/streams/continuity.ts';
import type { CommitSource, LiveFeed } from '#src/streams/event-store.ts';
import { capturedLog } from './logger.ts';

/** A gap detector that has started. Without another word it never looks at a silent stream. */
export async function startContinuity(
  feed: LiveFeed,
  source: CommitSource,
  { silenceMs = 600_000 }: { readonly silenceMs?: number } = {},
): Promise<Continuity> {
  const continuity = new Continuity({ feed, source, logger: capturedLog().logger, silenceMs });
  await continuity.start();
  return continuity;
}
