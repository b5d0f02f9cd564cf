import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { agentType, artifactType, budgetType, sessionType, tenantType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { ReceiptArchive } from '#src/commands/session/receipt-archive.ts';
import { sendCommand } from '#src/commands/session/send-command.ts';
import type { SendCommandDeps } from '#src/commands/session/command-handler.ts';
import { decideDeleteSession, decideOpenSession } from '#src/domain/session/decide.ts';
import { BASE_RECEIPTS, pagesOf } from '#src/domain/session/receipt-segments.ts';
import { RECEIPTS_KEPT } from '#src/domain/session/receipts.ts';
import { systemClock } from '#src/lib/clock.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import { sealedSnapshots } from '#src/streams/sealed-snapshots.ts';
import type { Snapshots } from '#src/streams/sealed-snapshots.ts';
import { refKey } from '#src/streams/subjects.ts';
import { artifactDepsOn } from '../support/artifact-deps.ts';
import { newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { openCommand } from '../support/sessions.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let log: TestLog;
let bucket: KeyValue;
let snapshots: Snapshots;
/** For results, which these tests send none of. */
let results: SendCommandDeps['results'];
const ref = newRef();

/** Enough for segments of two levels, beside receipts that have left and lie in none. */
const SENT = RECEIPTS_KEPT + 10 * BASE_RECEIPTS + 320;

interface Node {
  readonly deps: SendCommandDeps;
  /** Reads of snapshots and pages, and of the log, since it was made. */
  readonly trips: { snapshots: number; reads: number };
}

/** One node's write side, without a live feed. There is no database: nothing here could ask one. */
function newNode({ recoverWithinMs, prepares = true }: { recoverWithinMs?: number; prepares?: boolean } = {}): Node {
  const trips = { snapshots: 0, reads: 0 };
  const counted: Snapshots = {
    get: async (key) => {
      trips.snapshots++;
      return await snapshots.get(key);
    },
    put: async (key, value) => await snapshots.put(key, value),
  };
  const store: TestLog['store'] = new Proxy(log.store, {
    get: (target, name: keyof TestLog['store']) => {
      if (name === 'read') trips.reads++;
      const member = target[name];
      return typeof member === 'function' ? member.bind(target) : member;
    },
  });
  const older = new ReceiptArchive({
    ...{ store, snapshots: counted, cacheBytes: 50_000_000 },
    ...(recoverWithinMs === undefined ? {} : { recoverWithinMs }),
  });
  const sessions = new Repository({
    ...{ type: sessionType, store, snapshots: counted, cacheBytes: 50_000_000 },
    beforeSnapshot: async (of, state) => {
      if (prepares && state.status === 'open') await older.prepare(of, state.receipts);
    },
  });
  const cached = { store, cacheBytes: 1_000_000 };
  const deps = {
    ...{
      isDraining: () => false,
      isNew: () => false,
      tenantModel: () => null,
      publish: async () => await Promise.resolve(),
    },
    tenants: new Repository({ type: tenantType, ...cached }),
    loop: new CommandLoop(systemClock, () => 1),
    agents: new Repository({ type: agentType, ...cached }),
    artifacts: new Repository({ type: artifactType, ...cached }),
    budgets: new Repository({ type: budgetType, ...cached }),
    ...{ sessions, older, runner: null, clock: systemClock, results },
  };
  return { deps, trips };
}

async function send({ deps }: Node, n: number | string, bodyHash = `hash-${n}`) {
  const command = { type: 'cancel', requestId: `r-${n}`, subject: null } as const;
  const reach = { outOfReach: () => null, fileOutOfReach: () => null };
  const input = { ref, command, idempotencyKey: `k-${n}`, bodyHash, actor: 'application:test', ...reach };
  return await sendCommand(deps, input);
}

async function newest(): Promise<number> {
  return await log.store.head(ref);
}

async function keysOf(kind: 'pages' | 'snapshots'): Promise<string[]> {
  const keys: string[] = [];
  const listed = new AbortController();
  await bucket.watch(
    refKey(ref),
    (change) => void (change.kind === 'put' && keys.push(change.entry.key)),
    listed.signal,
  );
  listed.abort();
  return keys.filter((key) => key.includes('.r1.') === (kind === 'pages'));
}

/** Until every page that a node looks at is stored. */
async function pagesAreThere(): Promise<void> {
  const live = (await segmentsOf(writer)).reduce((sum, segment) => sum + pagesOf(segment), 0);
  await until('all pages are stored', async () => (await keysOf('pages')).length >= live);
}

async function segmentsOf(node: Node) {
  const { state } = await node.deps.sessions.load(ref);
  return state.status === 'open' ? state.receipts.segments : [];
}

const answers: unknown[] = [];
const sample = [0, 1, 60, 999, 1_000, 5_000, 7_999, 8_000, 8_999, 9_000, 10_300, 11_000, SENT - 1];
/** Was warm after the first command, and has heard nothing since: its live feed has failed it. */
let asleep: Node;
let writer: Node;

beforeAll(async () => {
  const nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
  const { snapshots: kv } = log.topology.buckets;
  bucket = new JetStreamKeyValue(log.connections.appends, { kv, name: 'SNAPSHOT' });
  snapshots = sealedSnapshots(bucket, log.keyring);
  const directory = disposables.use(await mkdtempDisposable(join(tmpdir(), 'agent-host-receipts-')));
  results = await artifactDepsOn(log.store, directory.path);
  [writer, asleep] = [newNode(), newNode()];
  const decide = (state: typeof sessionType.initial) => decideOpenSession(state, openCommand(), null);
  await writer.deps.loop.execute(writer.deps.sessions, ref, { actor: 'application:test', causation: 'open', decide });
  await asleep.deps.sessions.load(ref);
  for (let n = 0; n < SENT; n++) answers.push(await send(writer, n));
  await pagesAreThere();
}, 300_000);

afterAll(async () => {
  await disposables.disposeAsync();
});

async function expectReplays(node: Node, which: readonly number[] = sample): Promise<void> {
  const before = await newest();
  for (const n of which) expect(await send(node, n), `command ${n}`).toEqual(answers[n]);
  expect(await newest()).toBe(before);
}

describe('a command that is repeated', () => {
  test('is answered as at first, however many came after it, on a node that was just started', async () => {
    const node = newNode();
    await expectReplays(node);
    expect((await segmentsOf(node)).map(({ level }) => level)).toEqual([3, 0]);
  });

  test('with another body is refused, however many came after it', async () => {
    const node = newNode();
    for (const n of sample) {
      expect(await send(node, n, 'another'), `command ${n}`).toMatchObject({ code: 'idempotency_conflict' });
    }
  });

  test('on a node that has slept through thousands of others is recognised all the same', async () => {
    await expectReplays(asleep);
  });

  test('is recognised when pages, all of them or some, or all snapshots too have been lost, which brings them back', async () => {
    const pages = await keysOf('pages');
    for (const lost of [pages.slice(0, 1), pages, [...pages, ...(await keysOf('snapshots'))]]) {
      for (const key of lost) await bucket.remove(key);
      await expectReplays(newNode());
      await pagesAreThere();
    }
    const node = newNode();
    await expectReplays(node);
    // From the pages, not from the commits of their segments: a snapshot's rest, and each repetition's own commit.
    expect(node.trips.reads).toBeLessThan(4 * sample.length);
  });

  test('is answered 503, and not run again, while its page is read from the log', async () => {
    for (const key of await keysOf('pages')) await bucket.remove(key);
    const node = newNode({ recoverWithinMs: 0, prepares: false });
    const before = await newest();
    await expect(send(node, 0)).rejects.toMatchObject({ dependency: 'streams' });
    await until('the page is there again', async () => await send(node, 0).catch(() => false));
    expect(await send(node, 0)).toEqual(answers[0]);
    expect(await newest()).toBe(before);
  });

  test('is recognised also where another history has left a page in the place of its own', async () => {
    for (const key of await keysOf('pages')) {
      const stored = await snapshots.get(key);
      if (stored === null) continue;
      const page = JSON.parse(stored.value) as { check: number; traces: string };
      await snapshots.put(key, JSON.stringify({ ...page, check: page.check + 1, traces: '' }));
    }
    await expectReplays(newNode());
  });
});

describe('a command with a new key', () => {
  test('costs one read of each segment at most on a node that was just started, and none once it is warm', async () => {
    const node = newNode({ prepares: false });
    await node.deps.sessions.load(ref);
    const begun = { ...node.trips };
    await send(node, 'first');
    const segments = (await segmentsOf(node)).length;
    expect(node.trips.snapshots - begun.snapshots).toBeLessThanOrEqual(segments);
    expect(node.trips.reads).toBe(begun.reads);
    // Every page of both segments is met by now.
    for (let n = 0; n < 30; n++) await send(node, `warming-${n}`);
    const warm = { ...node.trips };
    for (let n = 0; n < 100; n++) expect(await send(node, `new-${n}`)).toMatchObject({ kind: 'done' });
    expect(node.trips).toEqual(warm);
  });
});

test('a repetition is refused when another node has deleted the session, though its receipts are still there', async () => {
  const [late, other] = [newNode(), newNode()];
  expect(await send(late, 0)).toEqual(answers[0]);
  const { loop, sessions } = other.deps;
  const decide = (state: typeof sessionType.initial) => decideDeleteSession(state);
  await loop.execute(sessions, ref, { actor: 'application:test', causation: 'delete', decide });
  expect(await send(late, 0)).toMatchObject({ code: 'not_found' });
});

test('what is stored of a session goes with it', async () => {
  expect((await keysOf('pages')).length).toBeGreaterThan(0);
  await bucket.erase(refKey(ref));
  expect([...(await keysOf('pages')), ...(await keysOf('snapshots'))]).toEqual([]);
});
