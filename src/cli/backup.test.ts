import { expect, test } from 'vitest';
import { StartError } from '../lib/start-error.ts';
import { eventStream } from '../streams/jetstream/shard-streams.ts';
import { refuseMoved, underOneHostKey } from './backup.ts';

/** A bucket whose entry of the Host key is replaced while it is copied. */
function bucket(before: string | null, after: string | null) {
  const done: string[] = [];
  const check = async (): Promise<string | null> => {
    done.push('check');
    return await Promise.resolve(done.includes('copy') ? after : before);
  };
  const copy = async (): Promise<string> => {
    done.push('copy');
    return await Promise.resolve('keys');
  };
  return { done, check, copy };
}

test('a backup names the Host key that its keys were copied under', async () => {
  const { done, check, copy } = bucket('one', 'one');
  expect(await underOneHostKey(check, copy)).toEqual({ copied: 'keys', hostKeyCheck: 'one' });
  expect(done).toEqual(['check', 'copy', 'check']);
});

test('a backup of keys whose Host key is changed meanwhile is refused', async () => {
  const { check, copy } = bucket('one', 'two');
  await expect(underOneHostKey(check, copy)).rejects.toThrow(
    new StartError('the Host key was changed meanwhile; run the backup again'),
  );
});

test('an installation without a Host key is not copied', async () => {
  const { done, check, copy } = bucket(null, 'one');
  await expect(underOneHostKey(check, copy)).rejects.toThrow('no Host key yet');
  expect(done).toEqual(['check']);
});

/** What a copy of a log of two streams says that it holds; `of`: the number of streams when the first was copied. */
function copies(of: number) {
  const buckets = ['KV_DIRECTORY', 'KV_SECRETS'].map((name) => ({ name, subjects: [`$KV.${name}.>`] }));
  return [...buckets, eventStream(0, { shards: of, replicas: 1 }), eventStream(1, { shards: 2, replicas: 1 })];
}

const TWO = ['EVT_0', 'EVT_1', 'KV_DIRECTORY', 'KV_SECRETS'];
const MOVED = 'moved to more shards meanwhile';
const named = (names: readonly string[]) => ({ names: async () => await Promise.resolve([...names]) });

test('a backup of a log that stays where it is, is whole', async () => {
  await expect(refuseMoved(named(TWO), { shards: 2, configs: copies(2) })).resolves.toBeUndefined();
  const configs = [eventStream(0, { shards: 1, replicas: 1 })];
  await expect(refuseMoved(named(['EVT_0']), { shards: 1, configs })).resolves.toBeUndefined();
});

test('a backup is refused while its log is moved to more shards, and after that', async () => {
  const copied = { shards: 2, configs: copies(2) };
  await expect(refuseMoved(named([...TWO, 'RESHARDING']), copied)).rejects.toThrow(MOVED);
  await expect(refuseMoved(named([...TWO, 'EVT_2', 'EVT_3']), copied)).rejects.toThrow(MOVED);
});

test('a backup that has copied a stream as a move left it is refused, also when the move was taken back', async () => {
  await expect(refuseMoved(named(TWO), { shards: 2, configs: copies(4) })).rejects.toThrow(MOVED);
});
