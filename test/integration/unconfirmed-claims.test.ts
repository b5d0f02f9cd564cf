import { afterAll, beforeAll, expect, test } from 'vitest';
import { sessionType } from '#src/commands/aggregate.ts';
import { Repository } from '#src/commands/repository.ts';
import { UnconfirmedClaims } from '#src/engine/unconfirmed-claims.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { TestNode } from '../support/engine.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let proxy: TcpProxy;
let direct: TestLog;
/** The log through the proxy. */
let faulty: TestLog;
/** Writes sessions past the proxy. */
let writer: TestNode;

beforeAll(async () => {
  const nats = disposables.use(await TestNats.start());
  proxy = disposables.use(await TcpProxy.start(nats.port));
  direct = disposables.use(await openLog(nats.url));
  faulty = disposables.use(await openLog(nats.urlThrough(proxy.port), { codec: direct.codec }));
  writer = new TestNode(direct);
});

afterAll(async () => {
  await disposables.disposeAsync();
});

interface Watched extends AsyncDisposable {
  readonly claims: UnconfirmedClaims;
  /** Sessions of which it has become known how they stand, each with its status then. */
  readonly known: Map<AggregateRef, string>;
  /** From now on, so many times, whoever is asked where a session stands does not have its newest commits. */
  readonly fallBehind: (asks: number) => void;
  /** So many of them are still to come. */
  readonly behind: () => number;
}

/** The unconfirmed claims of a process of which `claimsMax` may wait. */
function watched({ claimsMax = 10, looksMax = 9 } = {}): Watched {
  let asksBehind = 0;
  let before = 0;
  const head: EventStore['head'] = async (ref) => {
    const newest = await faulty.store.head(ref);
    if (asksBehind === 0) return (before = newest);
    asksBehind--;
    return before;
  };
  const sessions = new Repository({
    type: sessionType,
    store: overriding<EventStore>(faulty.store, { head }),
    cacheBytes: 1_000_000,
  });
  const unlisten = faulty.feed.listen({
    // Without a fold of its own: what is known of a session comes from whoever is asked.
    onCommit: (commit) => {
      sessions.forget(commit.ref.tenant);
      sessions.live(commit);
    },
    onDisruption: () => sessions.disrupted(),
  });
  const known = new Map<AggregateRef, string>();
  const onKnown = (ref: AggregateRef, { status }: { readonly status: string }): void => void known.set(ref, status);
  const claims = new UnconfirmedClaims({ sessions, onKnown, claimsMax, looksMax });
  return {
    ...{ claims, known, behind: () => asksBehind },
    fallBehind: (asks) => {
      asksBehind = asks;
    },
    [Symbol.asyncDispose]: async () => {
      unlisten();
      await claims.stop();
    },
  };
}

test('more claims than may wait while the log is away: each of them is followed until it is known', async () => {
  await using process = watched({ claimsMax: 2 });
  const refs = [newRef(), newRef(), newRef(), newRef()];
  proxy.hold();
  for (const ref of refs) process.claims.note(ref, 0);
  expect(process.claims.isFull).toBe(true);
  for (const ref of refs) await writer.openSession(ref);
  proxy.pass();
  await until('all of them are known', () => process.known.size === refs.length);
  expect(process.claims.isFull).toBe(false);
});

test('whoever is asked first has less than there was before the claim: it is not taken for the answer', async () => {
  await using process = watched();
  const ref = newRef();
  await writer.openSession(ref);
  const { position } = await writer.sessions.refresh(ref);
  process.fallBehind(1);
  process.claims.note(ref, position);
  await until('it has been asked', () => process.behind() === 0);
  await writer.message(ref, 'queue');
  await until('the claim is known', () => process.known.size === 1);
  expect(process.known.get(ref)).toBe('open');
});

test('a dormant claim is heard of, and whoever is asked first does not have it: it is known in the end', async () => {
  await using process = watched({ claimsMax: 1, looksMax: 3 });
  const ref = newRef();
  process.claims.note(ref, 0);
  expect(process.claims.isFull).toBe(true);
  await until('it is dormant', () => !process.claims.isFull);
  process.fallBehind(1);
  await writer.openSession(ref);
  await until('the claim is known', () => process.known.get(ref) === 'open');
});
