import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { agentType, artifactType, budgetType, sessionType, tenantType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { sendCommand } from '#src/commands/session/send-command.ts';
import type { SendCommandParts } from '#src/commands/session/send-command.ts';
import { decideOpenSession } from '#src/domain/session/decide.ts';
import { RECEIPTS_KEPT } from '#src/domain/session/receipts.ts';
import { systemClock } from '#src/lib/clock.ts';
import { ProjectionProgress } from '#src/projections/progress.ts';
import type { ReadStore } from '#src/projections/read-store/pool.ts';
import { sessionQueries } from '#src/projections/sessions/queries.ts';
import { ReadStoreUnavailableError } from '#src/projections/unavailable.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { TestPostgres } from '../support/postgres.ts';
import { followed, groupOf, project } from '../support/read-side.ts';
import { openCommand } from '../support/sessions.ts';

const disposables = new AsyncDisposableStack();
let log: TestLog;
/** A database whose read models hold everything, and one whose hold nothing. */
let full: ReadStore;
let behind: ReadStore;
const ref = newRef();
/** Was warm after the first command, and has heard nothing since: its live feed has failed it. */
let asleep: SendCommandParts;

const SENT = RECEIPTS_KEPT + 120;

/** One node's write side, without a live feed. */
function newNode(pool: ReadStore): SendCommandParts {
  const sessions = new Repository({ type: sessionType, store: log.store, cacheBytes: 50_000_000 });
  const queries = sessionQueries({ pool, store: log.store, progress: new ProjectionProgress(pool) });
  const older = {
    find: async (at: AggregateRef, key: string, upTo: number) => await queries.findReceipt(at, key, upTo),
  };
  const tenant = { isDraining: () => false, tenantModel: () => null };
  const agents = new Repository({ type: agentType, store: log.store, cacheBytes: 1_000_000 });
  return {
    ...tenant,
    tenants: new Repository({ type: tenantType, store: log.store, cacheBytes: 1_000_000 }),
    publish: async () => await Promise.resolve(),
    loop: new CommandLoop(systemClock, () => 1),
    agents,
    artifacts: new Repository({ type: artifactType, store: log.store, cacheBytes: 1_000_000 }),
    budgets: new Repository({ type: budgetType, store: log.store, cacheBytes: 1_000_000 }),
    sessions,
    older,
    runner: null,
    clock: systemClock,
  };
}

async function send(node: SendCommandParts, n: number, bodyHash = `hash-${n}`) {
  const command = { type: 'cancel', requestId: `r-${n}`, subject: null } as const;
  const reach = { outOfReach: () => null, fileOutOfReach: () => null };
  const input = { ref, command, idempotencyKey: `k-${n}`, bodyHash, actor: 'application:test', ...reach };
  return await sendCommand(node, input);
}

async function commits(): Promise<StoredCommit[]> {
  const all: StoredCommit[] = [];
  for (let more = true; more;) {
    const page = await log.store.read(ref, { after: all.at(-1)?.position ?? 0, limit: 1_000 });
    all.push(...page.commits);
    more = page.more;
  }
  return all;
}

const answers: unknown[] = [];

beforeAll(async () => {
  const [nats, postgres] = await Promise.all([TestNats.start(), TestPostgres.start()]);
  disposables.use(nats);
  disposables.use(postgres);
  log = disposables.use(await openLog(nats.url));
  const [one, other] = [disposables.use(await postgres.migrated()), disposables.use(await postgres.migrated())];
  [full, behind] = await Promise.all([one.pool(), other.pool()]);
  const node = newNode(full);
  asleep = newNode(full);
  const decide = (state: typeof sessionType.initial) => decideOpenSession(state, openCommand(), null);
  await node.loop.execute(node.sessions, ref, { actor: 'application:test', causation: 'open', decide });
  await asleep.sessions.load(ref);
  for (let n = 0; n < SENT; n++) answers.push(await send(node, n));
  await project(full, groupOf('sessions'), { from: 0, commits: (await commits()).slice(0, 500).map(followed) });
  const rest = (await commits()).slice(500);
  await project(full, groupOf('sessions'), {
    from: (await commits())[499]?.position ?? 0,
    commits: rest.map(followed),
  });
});

afterAll(async () => {
  await disposables.disposeAsync();
});

describe('a command that is repeated', () => {
  test('is answered as at first, however many came after it, and recorded once', async () => {
    const node = newNode(full);
    const before = (await commits()).length;
    for (const n of [0, 1, 60, 119, 120, 500, SENT - 1])
      expect(await send(node, n), `command ${n}`).toEqual(answers[n]);
    expect((await commits()).length).toBe(before);
    expect(before).toBe(SENT + 1);
  });

  test('with another body is refused, however many came after it', async () => {
    const node = newNode(full);
    for (const n of [0, 60, SENT - 1]) {
      expect(await send(node, n, 'another'), `command ${n}`).toMatchObject({ code: 'idempotency_conflict' });
    }
  });

  test('cannot be told from a new one while the read model is behind, and is not taken for one', async () => {
    const node = newNode(behind);
    await expect(send(node, 0)).rejects.toThrow(ReadStoreUnavailableError);
    // What the fold still has needs no read model.
    expect(await send(node, SENT - 1)).toEqual(answers[SENT - 1]);
  });

  test('on a node that has slept through a thousand others is recognised all the same', async () => {
    const before = (await commits()).length;
    expect(await send(asleep, 0)).toEqual(answers[0]);
    expect((await commits()).length).toBe(before);
  });
});
