import type { AggregateType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import type { Executed } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import type { RepositoryOptions } from '#src/commands/repository.ts';
import type { Rejection } from '#src/domain/kernel/rejection.ts';
import { systemClock } from '#src/lib/clock.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';

/** A note has the number of its commit, and the key of the command that took it. */
interface Note {
  readonly type: 'note.taken';
  readonly data: { readonly n: number; readonly key: string; readonly text: string };
}

/** Every note of the history: whatever a fold has left out shows. */
export interface NotesState {
  readonly numbers: readonly number[];
  readonly keys: readonly string[];
}

const notesType: AggregateType<NotesState, Note> = {
  kind: 'session',
  initial: { numbers: [], keys: [] },
  evolve: ({ numbers, keys }, { data }) => ({ numbers: [...numbers, data.n], keys: [...keys, data.key] }),
  schemas: {},
  foldVersion: 1,
  weigh: ({ numbers }) => 100 + numbers.length * 50,
};

export type Notes = Repository<NotesState, Note>;
export { notesType };

/** Folds of notes as a node without a live feed has them. */
export function newNotes(
  store: EventStore,
  options: Partial<Pick<RepositoryOptions<NotesState, Note>, 'snapshots'>> = {},
): Notes {
  return new Repository({ type: notesType, store, cacheBytes: 100_000_000, ...options });
}

export const newLoop = (): CommandLoop => new CommandLoop(systemClock, () => 1);

/** A command with an idempotency key: of a key that is known nothing is recorded. */
export async function takeNote(
  loop: CommandLoop,
  { notes, ref, key, text = '' }: { notes: Notes; ref: AggregateRef; key: string; text?: string },
): Promise<Executed<'new' | 'known'> | Rejection> {
  return await loop.execute<NotesState, Note, 'new' | 'known'>(notes, ref, {
    actor: 'application:test',
    causation: key,
    decide: ({ numbers, keys }) =>
      keys.includes(key)
        ? { kind: 'unchanged', reply: 'known' }
        : {
            kind: 'accepted',
            events: [{ type: 'note.taken', data: { n: numbers.length + 1, key, text } }],
            reply: 'new',
          },
  });
}

/** Takes so many notes with the keys `k1`, `k2`, … */
export async function takeNotes(
  loop: CommandLoop,
  { count, ...input }: { notes: Notes; ref: AggregateRef; count: number; text?: string },
): Promise<void> {
  for (let n = 1; n <= count; n++) await takeNote(loop, { ...input, key: `k${n}` });
}
