import { RowSeals } from '#src/streams/row-seals.ts';
import { glob, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { jetstream } from '@nats-io/jetstream';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '#src/lib/ids.ts';
import { Projector } from '#src/projections/runner.ts';
import { createCodec, UndecodableCommitError } from '#src/streams/codec.ts';
import { SCHEMAS } from '#src/projections/schemas.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import type { CommitSource, FollowedCommit } from '#src/streams/event-store.ts';
import { JetStreamCommitSource } from '#src/streams/jetstream/commit-source.ts';
import { JetStreamEventStore } from '#src/streams/jetstream/event-store.ts';
import { JetStreamLiveFeed } from '#src/streams/jetstream/live-feed.ts';
import { Keyring } from '#src/streams/keyring.ts';
import { LiveCommitSource } from '#src/streams/live-source.ts';
import { ErasedCommitError, sealedCodec } from '#src/streams/sealed-codec.ts';
import { sealedSnapshots } from '#src/streams/sealed-snapshots.ts';
import { subjectOf } from '#src/streams/subjects.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { appendAll, newCommit, newCommits, newRef } from '../support/commits.ts';
import { TEST_HOST_KEY } from '../support/host-keys.ts';
import { startContinuity } from '../support/continuity.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { TestPostgres } from '../support/postgres.ts';
import { seededRandom } from '../support/random.ts';
import { randomHistory } from '../support/random-sessions.ts';
import { groupOf } from '../support/read-side.ts';
import { until } from '../support/wait-until.ts';

const random = seededRandom('sealed-log');
const disposables = new AsyncDisposableStack();
let nats: TestNats;
let log: TestLog;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** A node that holds no key yet and is told of none: as if the news were late. */
function deafNode() {
  const { connections, topology, secrets } = log;
  const keyring = new Keyring({ bucket: secrets, hostKey: TEST_HOST_KEY, logger: capturedLog().logger });
  const codec = sealedCodec(createCodec({}), keyring);
  const { manager } = topology;
  const { appends: connection, reads } = connections;
  const store = new JetStreamEventStore({ connection, reads, manager, codec, shards: 1 });
  const source = new JetStreamCommitSource({ connection: connections.consumers, manager, codec, shards: 1 });
  const feed = new JetStreamLiveFeed(connections.live, codec);
  feed.start();
  disposables.defer(() => feed.stop());
  return { keyring, store, source, feed };
}

/** Bytes on the subject of an aggregate, past every check. */
async function raw(ref: AggregateRef, bytes: Uint8Array | string): Promise<number> {
  return (await jetstream(log.connections.appends).publish(subjectOf(ref), bytes)).seq;
}

async function bytesAt(position: number): Promise<Uint8Array> {
  const message = await log.topology.manager.streams.getMessage('EVT_0', { seq: position });
  if (message === null) throw new Error(`nothing at ${position}`);
  return message.data;
}

/** What a source gives of an aggregate's kind from a position on, up to another one. */
async function followed(source: CommitSource, after: number, upTo: number): Promise<FollowedCommit[]> {
  const end = new AbortController();
  const seen: FollowedCommit[] = [];
  const place = (one: FollowedCommit | undefined): number =>
    (one?.kind === 'commit' ? one.stored.position : one?.position) ?? 0;
  const options = { shard: 0, kinds: ['session'] as const, after, signal: end.signal, buffer: 100 };
  for await (const batch of source.follow(options)) {
    seen.push(...batch);
    if (place(seen.at(-1)) >= upTo) break;
  }
  end.abort();
  return seen;
}

const commitsOf = async (store: JetStreamEventStore, ref: AggregateRef) =>
  (await store.read(ref, { after: 0, limit: 100 })).commits.map(({ commit }) => commit);

async function inFiles(text: string): Promise<boolean> {
  for await (const name of glob('jetstream/**', { cwd: nats.directory })) {
    if ((await readFile(join(nats.directory, name), 'latin1').catch(() => '')).includes(text)) return true;
  }
  return false;
}

describe('commits', () => {
  test('lie sealed in the files of the server, and come back', async () => {
    const [sealed, open] = [newRef(), newRef()];
    const commit = newCommit(1, { text: 'planted-in-a-sealed-commit' });
    await appendAll(log.store, sealed, [commit]);
    await raw(open, JSON.stringify(newCommit(1, { text: 'planted-in-an-open-commit' })));
    await until('the search finds what is there', async () => await inFiles('planted-in-an-open-commit'));
    expect(await inFiles('planted-in-a-sealed-commit')).toBe(false);
    expect(await commitsOf(log.store, sealed)).toEqual([commit]);
    expect(await commitsOf(deafNode().store, sealed)).toEqual([commit]);
  });

  test('that come back as this process has sealed them are not opened again, once', async () => {
    const { keyring } = log;
    let opened = 0;
    const counting = overriding<Keyring>(keyring, {
      open: (...place) => {
        opened++;
        return keyring.open(...place);
      },
    });
    const codec = sealedCodec(createCodec({}), counting);
    const ref = newRef();
    await keyring.create(ref.tenant);
    const [commit, other] = [newCommit(1), newCommit(2)];
    const [mine, changed] = [await codec.encode(ref, commit), await codec.encode(ref, other)];
    expect(codec.decode(ref, Buffer.from(mine.bytes))).toEqual({ commit, hash: mine.hash });
    expect(opened).toBe(0);
    expect(codec.decode(ref, mine.bytes)).toEqual({ commit, hash: mine.hash });
    expect(opened).toBe(1);
    const tampered = Buffer.from(changed.bytes);
    tampered[tampered.length - 1] = (tampered.at(-1) ?? 0) ^ 1;
    expect(() => codec.decode(ref, tampered)).toThrow(UndecodableCommitError);
    expect(() => codec.decode(newRef(), changed.bytes)).toThrow(UndecodableCommitError);
  });

  test('from before they were sealed are read, and new ones follow them', async () => {
    const ref = newRef();
    const [old, next] = [newCommit(1), newCommit(2)];
    const position = await raw(ref, JSON.stringify(old));
    await log.store.append(ref, position, next);
    expect(await commitsOf(log.store, ref)).toEqual([old, next]);
    expect(Buffer.from(await bytesAt(position + 1)).includes('commitId')).toBe(false);
  });

  test('that were changed, or moved to another aggregate, are refused', async () => {
    const ref = newRef();
    const [position = 0] = await appendAll(log.store, ref, newCommits(1));
    const bytes = Buffer.from(await bytesAt(position));
    const others: AggregateRef[] = [
      { ...ref, id: `${ref.id}x` },
      { ...ref, kind: 'agent' },
      { ...ref, tenant: newRef().tenant },
    ];
    for (const other of others) {
      await raw(other, bytes);
      await expect(commitsOf(log.store, other)).rejects.toThrow(UndecodableCommitError);
    }
    const changed = { ...ref, id: `${ref.id}y` };
    const bits = Buffer.from(bytes);
    bits.writeUInt8(bits.readUInt8(bits.length - 1) ^ 1, bits.length - 1);
    await raw(changed, bits);
    await expect(commitsOf(log.store, changed)).rejects.toThrow(UndecodableCommitError);
  });

  test('of new tenants arrive live, complete and in order, also before the news of their keys', async () => {
    const { feed } = deafNode();
    const seen: StoredCommit[] = [];
    const disruptions: string[] = [];
    feed.listen({ onCommit: (commit) => void seen.push(commit.stored()), onDisruption: () => disruptions.push('x') });
    await log.connections.live.flush();
    const positions: number[] = [];
    for (let n = 0; n < 20; n++) positions.push(...(await appendAll(log.store, newRef(), newCommits(2))));
    await until('all have come', () => seen.length >= 40);
    expect(seen.map(({ position }) => position)).toEqual(positions);
    expect(disruptions).toEqual([]);
  });
});

describe('an erased tenant', () => {
  test('is erased also for the process that has just sealed its commits', async () => {
    const ref = newRef();
    await log.keyring.create(ref.tenant);
    const codec = sealedCodec(createCodec({}), log.keyring);
    const { bytes } = await codec.encode(ref, newCommit(1));
    await log.keyring.destroy(ref.tenant);
    expect(() => codec.decode(ref, bytes)).toThrow(ErasedCommitError);
  });

  test('has no commits: reads, followers and live readers step over them; its appends conflict', async () => {
    const [ref, other] = [newRef(), newRef()];
    const [first = 0, , , last = 0] = await appendAll(log.store, ref, newCommits(4));
    const [bystander = 0] = await appendAll(log.store, other, newCommits(1));
    const late = await bytesAt(last);
    await log.keyring.destroy(ref.tenant);
    const deaf = deafNode();
    for (const { store, source } of [log, deaf]) {
      expect(await store.read(ref, { after: 0, limit: 2, atLeast: last })).toEqual({ commits: [], more: false });
      expect(await store.head(ref)).toBe(last);
      const continuity = await startContinuity(log.feed, source);
      for (const one of [source, new LiveCommitSource(source, continuity)]) {
        const seen = await followed(one, first - 1, bystander);
        expect(seen.map(({ kind }) => kind)).toEqual(['erased', 'erased', 'erased', 'erased', 'commit']);
      }
      continuity.stop();
      expect(await store.append(ref, last, newCommit(5))).toEqual({ kind: 'conflict' });
      expect(await store.head(ref)).toBe(last);
    }
    const heard: unknown[] = [];
    const disruptions: string[] = [];
    const stop = deaf.feed.listen({
      onCommit: (commit) => {
        heard.push(commit.position);
        commit.stored();
      },
      onDisruption: () => disruptions.push('x'),
    });
    const position = await raw(ref, late);
    await until('it was heard', () => heard.includes(position));
    stop();
    expect(disruptions).toEqual([]);
    expect(() => log.codec.decode(ref, late)).toThrow(ErasedCommitError);
  });

  test('leaves the projectors silent; the missing key of a living one is an alarm, and no row is lost for others', async () => {
    await using postgres = await TestPostgres.start();
    await using database = await postgres.migrated();
    const pool = await database.pool();
    const histories = Array.from(
      { length: 3 },
      () => randomHistory(random, { sessions: 1, commits: 5, tenant: newId('tn') }).commits,
    );
    const [erased, broken, living] = histories.map(([first]) => (first ?? { ref: newRef() }).ref) as [
      ...[AggregateRef, AggregateRef, AggregateRef],
    ];
    const after = await log.source.newest(0, 'all');
    await database.query(`insert into ${SCHEMAS.sessions}.checkpoint (shard, position) values (0, ${after})`);
    for (const history of histories) {
      const [first] = history;
      if (first !== undefined)
        await appendAll(
          log.store,
          first.ref,
          history.map(({ commit }) => commit),
        );
    }
    const newest = await log.source.newest(0, 'all');
    await log.keyring.destroy(erased.tenant);
    await log.secrets.shred(`key.${broken.tenant}`);
    const { logger, lines } = capturedLog();
    const deaf = deafNode();
    const projector = new Projector({
      ...{ group: groupOf('sessions'), shard: 0, pool, source: deaf.source, logger },
      seals: new RowSeals(deaf.keyring, createCodec({})),
      restore: async () => await Promise.reject(new Error('nobody drops it')),
      onProgress: () => undefined,
    });
    projector.start();
    await until('everything is projected', () => projector.position >= newest);
    await projector.stop();
    const sessions = await database.query<{ tenant: string }>(`select tenant from ${SCHEMAS.sessions}.session`);
    expect(sessions.map(({ tenant }) => tenant)).toEqual([living.tenant]);
    const parked = await database.query<{ subject: string; error: string }>(
      `select subject, error from ${SCHEMAS.sessions}.parked`,
    );
    expect(new Set(parked.map(({ subject }) => subject))).toEqual(new Set([subjectOf(broken)]));
    expect(parked[0]?.error).toContain('is missing');
    const alarms = lines.filter(({ msg }) => msg.includes('ALARM'));
    expect(alarms).toHaveLength(parked.length);
    expect(JSON.stringify(lines)).not.toContain(erased.tenant);
  });
});

test('snapshots are sealed, and one that does not open is none', async () => {
  const bucket = log.secrets;
  const snapshots = sealedSnapshots(bucket, log.keyring);
  const [tenant, other] = [newId('tn'), newId('tn')];
  const [key, otherKey] = [`session.${tenant}.a.f1`, `session.${other}.a.f1`];
  for (const id of [tenant, other]) await log.keyring.create(id);
  await snapshots.put(key, 'a folded state');
  expect(await snapshots.get(key)).toEqual({ value: 'a folded state' });
  const { value } = (await bucket.get(key)) ?? { value: '' };
  expect(Buffer.from(value, 'base64').includes('folded')).toBe(false);
  for (const text of [value, '{"state":1}', '']) {
    await bucket.put(otherKey, text);
    expect(await snapshots.get(otherKey)).toBeNull();
  }
  await log.keyring.destroy(tenant);
  expect(await snapshots.get(key)).toBeNull();
  expect(await snapshots.get(`session.${other}.b.f1`)).toBeNull();
});
