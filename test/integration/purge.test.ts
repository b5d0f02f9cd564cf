import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import { expect, test } from 'vitest';
import { purgeInSteps, purgeSubjects } from '#src/streams/jetstream/purge.ts';
import { useServers } from '../support/servers.ts';

const servers = useServers({});

test('what is purged goes a few thousand at a time, and what is of others stays', async () => {
  const { appends: connection } = servers.log.connections;
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: 'PURGED', subjects: ['purged.>'], storage: 'memory' });
  const js = jetstream(connection);
  const published: Promise<unknown>[] = [];
  // A stretch that is all of one tenant, with a little of another, and one in which it has little.
  const ofOther = (n: number): boolean => (n < 12_000 ? n % 500 === 0 : n % 100 !== 0);
  for (let n = 0; n < 24_000; n++) {
    published.push(js.publish(`purged.${ofOther(n) ? 'other' : 'doomed'}.${n % 7}`, ''));
    if (published.length === 500) await Promise.all(published.splice(0));
  }
  await Promise.all(published);
  const requests: { readonly filter: string; readonly seq: number }[] = [];
  const heard = connection.subscribe('$JS.API.STREAM.PURGE.PURGED', {
    callback: (_, message) => void requests.push(message.json()),
  });
  await connection.flush();
  const before = 23_500;
  await purgeInSteps(manager, 'PURGED', { filter: 'purged.doomed.*', before });
  await connection.flush();
  const count = async (): Promise<readonly number[]> => {
    const { state } = await manager.streams.info('PURGED', { subjects_filter: 'purged.>' });
    const of = (whose: string): number =>
      Object.entries(state.subjects ?? {}).reduce((sum, [name, n]) => (name.includes(whose) ? sum + n : sum), 0);
    return [of('doomed'), of('other')];
  };
  const all = Array.from({ length: 24_000 }, (_, n) => n);
  const others = all.filter(ofOther).length;
  // A message's sequence is one more than its number.
  expect(await count()).toEqual([all.filter((n) => !ofOther(n) && n + 1 >= before).length, others]);
  expect(requests.length).toBeGreaterThan(3);
  for (const [n, { seq, filter }] of requests.entries()) {
    expect(filter).toBe('purged.doomed.*');
    expect(seq - (requests[n - 1]?.seq ?? 0)).toBeLessThan(20_000);
  }
  await purgeInSteps(manager, 'PURGED', { filter: 'purged.doomed.*', before: null });
  expect(await count()).toEqual([0, others]);
  heard.unsubscribe();
});

test('a subject goes by one request however sparse it is, and all of a filter subject by subject, by two nodes at once', async () => {
  const { appends: connection } = servers.log.connections;
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: 'GOES', subjects: ['goes.>'], storage: 'memory' });
  const js = jetstream(connection);
  const published: Promise<unknown>[] = [];
  const subjectOf = (n: number): string =>
    n % 1_000 === 0 ? 'goes.sparse.s' : n % 3 === 0 ? 'goes.other.s' : `goes.doomed.s${n % 50}`;
  for (let n = 0; n < 30_000; n++) {
    published.push(js.publish(subjectOf(n), ''));
    if (published.length === 500) await Promise.all(published.splice(0));
  }
  await Promise.all(published);
  const requests: { readonly filter: string; readonly seq: number }[] = [];
  const heard = connection.subscribe('$JS.API.STREAM.PURGE.GOES', {
    callback: (_, message) => void requests.push(message.json()),
  });
  await connection.flush();
  const count = async (filter: string): Promise<number> => {
    const { state } = await manager.streams.info('GOES', { subjects_filter: filter });
    return Object.values(state.subjects ?? {}).reduce((sum, n) => sum + n, 0);
  };
  const others = await count('goes.other.s');

  for (const before of [0, 1, 20_001]) await purgeInSteps(manager, 'GOES', { filter: 'goes.sparse.s', before });
  await connection.flush();
  expect(requests).toEqual([{ filter: 'goes.sparse.s', seq: 20_001 }]);
  expect(await count('goes.sparse.s')).toBe(10);

  requests.length = 0;
  await Promise.all(Array.from({ length: 2 }, async () => await purgeSubjects(manager, 'GOES', 'goes.doomed.*')));
  await connection.flush();
  expect(await count('goes.doomed.*')).toBe(0);
  // One by wildcards would look into all that follows with the stream locked, and one without a sequence would take what is new.
  for (const { filter, seq } of requests) {
    expect(filter).toMatch(/^goes\.doomed\.s\d+$/);
    expect(seq).toBe(30_001);
  }
  expect([await count('goes.other.s'), await count('goes.sparse.s')]).toEqual([others, 10]);
  heard.unsubscribe();
});

test('a stream that never had a message, and one whose first message is of another, are no trouble', async () => {
  const { appends: connection } = servers.log.connections;
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: 'NEVER', subjects: ['never.>'], storage: 'memory' });
  await purgeInSteps(manager, 'NEVER', { filter: 'never.doomed.>', before: 5 });
  await purgeSubjects(manager, 'NEVER', 'never.doomed.*');
  const js = jetstream(connection);
  const names = ['other.a', 'doomed.a', 'doomed.b.c', 'other.b', 'doomed.b'];
  for (const name of names) await js.publish(`never.${name}`, '');
  const left = async (): Promise<readonly string[]> => {
    const { state } = await manager.streams.info('NEVER', { subjects_filter: 'never.>' });
    return Object.keys(state.subjects ?? {}).toSorted();
  };
  await purgeSubjects(manager, 'NEVER', 'never.doomed.*');
  expect(await left()).toEqual(['never.doomed.b.c', 'never.other.a', 'never.other.b']);
  await purgeInSteps(manager, 'NEVER', { filter: 'never.other.*', before: null });
  expect(await left()).toEqual(['never.doomed.b.c']);
  await purgeInSteps(manager, 'NEVER', { filter: 'never.doomed.>', before: null });
  expect(await left()).toEqual([]);
});
