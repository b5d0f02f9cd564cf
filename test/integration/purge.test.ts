import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import type { Msg, NatsConnection } from '@nats-io/transport-node';
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
  const goes = { filter: 'goes.doomed.*', parts: ['goes.doomed.*', 'goes.none.*'] };

  for (const before of [0, 1, 20_001]) await purgeInSteps(manager, 'GOES', { filter: 'goes.sparse.s', before });
  await connection.flush();
  expect(requests).toEqual([{ filter: 'goes.sparse.s', seq: 20_001 }]);
  expect(await count('goes.sparse.s')).toBe(10);

  requests.length = 0;
  await Promise.all(Array.from({ length: 2 }, async () => await purgeSubjects(manager, 'GOES', goes)));
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
  await purgeSubjects(manager, 'NEVER', { filter: 'never.doomed.*', parts: ['never.doomed.*'] });
  const js = jetstream(connection);
  const names = ['other.a', 'doomed.a', 'doomed.b.c', 'other.b', 'doomed.b'];
  for (const name of names) await js.publish(`never.${name}`, '');
  const left = async (): Promise<readonly string[]> => {
    const { state } = await manager.streams.info('NEVER', { subjects_filter: 'never.>' });
    return Object.keys(state.subjects ?? {}).toSorted();
  };
  await purgeSubjects(manager, 'NEVER', { filter: 'never.doomed.*', parts: ['never.doomed.*'] });
  expect(await left()).toEqual(['never.doomed.b.c', 'never.other.a', 'never.other.b']);
  await purgeInSteps(manager, 'NEVER', { filter: 'never.other.*', before: null });
  expect(await left()).toEqual(['never.doomed.b.c']);
  await purgeInSteps(manager, 'NEVER', { filter: 'never.doomed.>', before: null });
  expect(await left()).toEqual([]);
});

/** Requests of the API that a stream is sent, without what only asks for its state. */
async function requestsOf(connection: NatsConnection, stream: string): Promise<{ at: string; body: string }[]> {
  const requests: { at: string; body: string }[] = [];
  const callback = (_: unknown, message: Msg): void => {
    const at = message.subject.replace('$JS.API.STREAM.', '').replace(`.${stream}`, '');
    if (at !== 'INFO') requests.push({ at, body: message.string() });
  };
  for (const what of ['PURGE', 'MSG.GET', 'MSG.DELETE'])
    connection.subscribe(`$JS.API.STREAM.${what}.${stream}`, { callback });
  await connection.flush();
  return requests;
}

test('what a tenant has nothing of is not searched for', async () => {
  const { appends: connection } = servers.log.connections;
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: 'FOUND', subjects: ['found.>'], storage: 'memory' });
  const js = jetstream(connection);
  for (const subject of ['other.a', 'doomed.a', 'other.b']) await js.publish(`found.${subject}`, '');
  const requests = await requestsOf(connection, 'FOUND');
  await purgeSubjects(manager, 'FOUND', { filter: 'found.nobody.*', parts: ['found.nobody.*'] });
  await connection.flush();
  expect(requests).toEqual([]);
  await purgeSubjects(manager, 'FOUND', { filter: 'found.doomed.*', parts: ['found.doomed.*'] });
  await connection.flush();
  expect(requests.map(({ at }) => at)).toEqual(['MSG.GET', 'MSG.GET', 'PURGE']);
  const searched = requests.flatMap(({ at, body }) => (at === 'MSG.GET' ? [body] : []));
  for (const body of searched) expect(body).toContain('found.doomed.a');
});

test('many subjects are found by a search from one to the next, which ends with the last', async () => {
  const { appends: connection } = servers.log.connections;
  const manager = await jetstreamManager(connection);
  await manager.streams.add({ name: 'MANY', subjects: ['many.>'], storage: 'memory' });
  const js = jetstream(connection);
  const many = Array.from({ length: 1_200 }, (_, n) => `many.doomed.s${n}`);
  await Promise.all([...many, 'many.other.s', ...many].map(async (subject) => await js.publish(subject, '')));
  await js.publish('many.other.s', '');
  const requests = await requestsOf(connection, 'MANY');
  await purgeSubjects(manager, 'MANY', { filter: 'many.doomed.*', parts: ['many.doomed.*'] });
  await connection.flush();
  const { state } = await manager.streams.info('MANY', { subjects_filter: '>' });
  expect(state.subjects).toEqual({ 'many.other.s': 2 });
  const searches = requests.filter(({ at, body }) => at === 'MSG.GET' && body.includes('many.doomed.*'));
  // The first one is found without: it is the stream's first message. After the last there is nothing to look for.
  expect(searches).toHaveLength(many.length - 1);
});

test.each([
  { denied: false, chained: true, goes: 'one by one', purges: 0 },
  { denied: true, chained: true, goes: 'by a request, as in a log of an older version', purges: 1 },
  { denied: false, chained: false, goes: 'by a request, where they do not say what was before them', purges: 1 },
  // The last: the server's user may not from then on.
  { denied: false, chained: true, goes: 'by a request, where deletions are not permitted', purges: 1, forbidden: true },
])('few messages of a subject that are far apart go $goes', async ({ denied, chained, purges, forbidden = false }) => {
  const { appends: connection } = servers.log.connections;
  if (forbidden) await servers.nats.forbid('$JS.API.STREAM.MSG.DELETE.>');
  const manager = await jetstreamManager(connection);
  const name = `FAR_${denied}_${chained}_${forbidden}`;
  const of = (whose: string): string => `${name}.${whose}`;
  await manager.streams.add({ name, subjects: [`${name}.>`], deny_delete: denied });
  const js = jetstream(connection);
  const positions: number[] = [];
  const others: number[] = [];
  for (let n = 0; n < 120; n++) {
    for (const [whose, stored] of n % 10 === 0
      ? ([
          ['doomed', positions],
          ['twice', others],
        ] as const)
      : []) {
      const expect = { lastSubjectSequence: stored.at(-1) ?? 0 };
      stored.push((await js.publish(of(whose), '', chained ? { expect } : {})).seq);
    }
    await js.publish(of('other'), new Uint8Array(400_000));
    // So that there are more between them than one request may remove.
    await Promise.all(Array.from({ length: 100 }, async () => await js.publish(of('other'), '')));
  }
  const requests = await requestsOf(connection, name);
  const left = async (whose = 'doomed'): Promise<number> => {
    const { state } = await manager.streams.info(name, { subjects_filter: of(whose) });
    return state.subjects?.[of(whose)] ?? 0;
  };

  // Of one subject that somebody may read, all go at once.
  const [, , third = 0] = positions;
  await purgeInSteps(manager, name, { filter: of('doomed'), before: third });
  await connection.flush();
  expect(await left()).toBe(10);
  const ways = (): readonly string[] => requests.flatMap(({ at }) => (at === 'MSG.GET' ? [] : [at]));
  expect(ways()).toEqual(['PURGE']);
  // The server reads the blocks in between before it is asked to look into them with the stream locked.
  const read = (): readonly number[] =>
    requests.flatMap(({ at, body }) => (at === 'MSG.GET' ? [JSON.parse(body).seq ?? 0] : []));
  const blocks = Array.from({ length: 6 }, (_, block) => block * 20 * 101);
  const unread = (): readonly number[] =>
    blocks.filter((start) => !read().some((seq) => seq > start && seq <= start + 20 * 101));
  expect(unread()).toEqual([]);

  requests.splice(0);
  await purgeSubjects(manager, name, { filter: of('*'), parts: [of('doomed'), of('none')] });
  await connection.flush();
  expect(await left()).toBe(0);
  const deleted = (): readonly number[] =>
    requests.flatMap(({ at, body }) => (at === 'MSG.DELETE' ? [JSON.parse(body).seq] : []));
  expect(deleted()).toEqual(purges === 0 ? positions.slice(2) : []);
  expect(ways().filter((at) => at === 'PURGE')).toHaveLength(purges);
  const untouched = unread().filter((start) => start >= third);
  expect(untouched).toEqual([]);

  requests.splice(0);
  await Promise.all(
    Array.from({ length: 2 }, async () => {
      await purgeSubjects(manager, name, { filter: of('*'), parts: [of('twice'), of('none')] });
    }),
  );
  await connection.flush();
  expect(await left('twice')).toBe(0);
  expect([...new Set(deleted())].toSorted((a, b) => a - b)).toEqual(purges === 0 ? others : []);
  const { state } = await manager.streams.info(name);
  expect(state.messages).toBe(120 * 101);
});
