import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { agentType, budgetType, sessionType, vaultType } from '#src/commands/aggregate.ts';
import { archiveAgent, saveAgent } from '#src/commands/agent/save-agent.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository, snapshotKey } from '#src/commands/repository.ts';
import { deleteSession } from '#src/commands/session/delete-session.ts';
import { openSession } from '#src/commands/session/open-session.ts';
import { budgetsRef } from '#src/commands/tenant/budgets.ts';
import { decideRaiseBudget, decideSaveBudgets } from '#src/domain/budget/decide.ts';
import type { Budget } from '#src/domain/budget/state.ts';
import type { Manifest } from '#src/domain/agent/manifest.ts';
import { BudgetGate } from '#src/engine/budget-gate.ts';
import { systemClock } from '#src/lib/clock.ts';
import { newId } from '#src/lib/ids.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import { NatsCluster } from '../support/cluster/nats-cluster.ts';
import { newRef } from '../support/commits.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { noSandbox, noSandboxes } from '../support/no-sandboxes.ts';
import { newLoop, newNotes, notesType, takeNote, takeNotes } from '../support/notes.ts';
import { overriding } from '../support/overriding.ts';

const by = { actor: 'application:test', causation: 'test' };
const oneTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1);

/** Folds of a node that hears nothing of what other nodes append: what it has cached stays as it is. */
function deafNode(store: EventStore) {
  const cacheBytes = 10_000_000;
  const loop = new CommandLoop(systemClock, () => 1);
  return {
    loop,
    agents: new Repository({ type: agentType, store, cacheBytes }),
    sessions: new Repository({ type: sessionType, store, cacheBytes }),
    budgets: new Repository({ type: budgetType, store, cacheBytes }),
    vaults: new Repository({ type: vaultType, store, cacheBytes }),
    isNew: () => false,
    sandboxes: noSandboxes,
    clock: systemClock,
  };
}

type Node = ReturnType<typeof deafNode>;

const manifest = (instructions: string): Manifest => ({ instructions });

async function save(node: Node, tenant: string, instructions: string): Promise<number> {
  const ref = { tenant, kind: 'agent', id: 'agent' } as const;
  const input = { ref, manifest: manifest(instructions), implementationVersion: null, ...by };
  const outcome = await saveAgent(node, input);
  if (outcome.kind === 'rejected') throw new Error(outcome.code);
  return outcome.reply.version;
}

describe('what is settled without an append is settled on the newest state', () => {
  const disposables = new AsyncDisposableStack();
  let log: TestLog;

  beforeAll(async () => {
    const nats = disposables.use(await TestNats.start());
    log = disposables.use(await openLog(nats.url));
  });

  afterAll(async () => {
    await disposables.disposeAsync();
  });

  test('an agent that is saved as it was before another node changed it is a new version', async () => {
    const [here, there] = [deafNode(log.store), deafNode(log.store)];
    const tenant = newId('tn');
    expect(await save(here, tenant, 'first')).toBe(1);
    expect(await save(there, tenant, 'second')).toBe(2);
    expect(await save(here, tenant, 'first')).toBe(3);
  });

  test('a limit that another node has set holds, and one that it has raised does not', async () => {
    const [here, there] = [deafNode(log.store), deafNode(log.store)];
    const tenant = newId('tn');
    const gate = new BudgetGate({
      ...here,
      isBudgeted: () => true,
      mayAllot: () => false,
      logger: capturedLog().logger,
    });
    const reserve = async (n: number): Promise<Budget | null> => {
      const call = { callId: `call-${n}`, agentId: 'agent', sessionId: 's', before: { costUsd: 1, tokens: 1 } };
      return (await gate.reserve(tenant, call, 'worker:w')).refusedBy;
    };
    expect(await reserve(1)).toBeNull();
    const budget = { id: 'b', scope: 'tenant', period: 'total', limitUsd: 1.5 } as const;
    const spent = { budgetId: 'b', costUsd: 1, tokens: 1, calls: 1 };
    const ledger = { at: new Date().toISOString(), spent: [spent], pending: [], counted: [] };
    await there.loop.execute(there.budgets, budgetsRef(tenant), {
      ...by,
      decide: (state) => decideSaveBudgets(state, [budget], ledger),
    });
    expect(await reserve(2)).toMatchObject({ id: 'b' });
    const raise = { budgetId: 'b', limitUsd: 10 };
    await there.loop.execute(there.budgets, budgetsRef(tenant), {
      ...by,
      decide: (state) => decideRaiseBudget(state, raise, new Date().toISOString()),
    });
    expect(await reserve(3)).toBeNull();
  });

  test('a session that another node has deleted is opened again on the newest version', async () => {
    const [here, there] = [deafNode(log.store), deafNode(log.store)];
    const ref = newRef();
    const rest = {
      subject: null,
      actsFor: null,
      info: {},
      labels: {},
      vaultIds: [],
      bodyHash: 'b',
      actor: 'a',
      requestId: 'r',
    };
    const input = { ref, agentId: 'agent', sandbox: noSandbox, ...rest };
    await save(here, ref.tenant, 'first');
    expect(await openSession(here, input)).toMatchObject({ kind: 'done' });
    await save(there, ref.tenant, 'second');
    const deletion = { ref, actor: 'a', requestId: 'r', outOfReach: () => null };
    expect(await deleteSession(there, deletion)).toMatchObject({ kind: 'done' });
    expect(await openSession(here, input)).toMatchObject({ kind: 'done' });
    expect((await there.sessions.refresh(ref)).state).toMatchObject({ status: 'open', agentVersion: 2 });
    // And one that another node has opened is there, though the agent has gone meanwhile.
    const other = { ...input, ref: { ...ref, id: 'other' } };
    expect(await openSession(here, { ...other, agentId: 'none' })).toMatchObject({ code: 'not_found' });
    expect(await openSession(there, other)).toMatchObject({ kind: 'done' });
    expect(await archiveAgent(there, { ref: { ...ref, kind: 'agent', id: 'agent' }, ...by })).toMatchObject({
      kind: 'done',
    });
    expect(await openSession(here, other)).toMatchObject({ kind: 'done', position: null });
  });

  test('a snapshot that the next commit does not follow is left aside, and the whole history read', async () => {
    const snapshots = new JetStreamKeyValue(log.connections.appends, {
      kv: log.topology.buckets.snapshots,
      name: 'SNAPSHOT',
    });
    const [ref, loop] = [newRef(), newLoop()];
    const writer = newNotes(log.store);
    await takeNotes(loop, { notes: writer, ref, count: 10 });
    const { position, rev } = await writer.load(ref);
    const broken = { state: { numbers: [1, 2, 9], keys: [] }, position, rev, hash: 'of another commit' };
    await snapshots.put(snapshotKey(ref, notesType), JSON.stringify(broken));
    await takeNote(loop, { notes: writer, ref, key: 'k11' });
    const { state } = await newNotes(log.store, { snapshots }).load(ref);
    expect(state.numbers).toEqual(oneTo(11));
  });

  test('a hole in what the log gives is never folded, whoever made it', async () => {
    const [ref, loop] = [newRef(), newLoop()];
    await takeNotes(loop, { notes: newNotes(log.store), ref, count: 12 });
    let torn = 2;
    const lossy = overriding<EventStore>(log.store, {
      read: async (of, range) => {
        const page = await log.store.read(of, range);
        return torn-- > 0 ? { ...page, commits: page.commits.filter((_, n) => n !== 5) } : page;
      },
    });
    expect((await newNotes(lossy).load(ref)).state.numbers).toEqual(oneTo(12));
    torn = Number.POSITIVE_INFINITY;
    await expect(newNotes(lossy).load(ref)).rejects.toThrow('does not follow 5');
  });

  test('a head from a server that has not heard of the newest commits takes nothing back', async () => {
    const [ref, loop] = [newRef(), newLoop()];
    let isBehind = false;
    const store = overriding<EventStore>(log.store, {
      head: async (of) => (isBehind ? 1 : await log.store.head(of)),
    });
    const notes = newNotes(store);
    await takeNotes(loop, { notes, ref, count: 3 });
    isBehind = true;
    await expect(notes.refresh(ref)).rejects.toThrow('behind');
    isBehind = false;
    expect((await notes.refresh(ref)).state.numbers).toEqual(oneTo(3));
  });
});

const ROUNDS = 240;

test(
  'with three replicas: an agent that one node has saved is there for the other at once',
  { timeout: 400_000 },
  async () => {
    await using cluster = await NatsCluster.start();
    const ports = cluster.servers.map(({ port }) => port);
    await using first = await openLog(cluster.urlThrough(ports.slice(0, 1)), { replicas: 3 });
    await using second = await openLog(cluster.urlThrough(ports.slice(1, 2)), { replicas: 3, codec: first.codec });
    await using third = await openLog(cluster.urlThrough(ports.slice(2)), { replicas: 3, codec: first.codec });
    const nodes = [first, second, third].map(({ store }) => deafNode(store));
    const outcomes: string[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const [saver, archiver] = [nodes[round % 3], nodes[(round + 1 + (round % 2)) % 3]];
      if (saver === undefined || archiver === undefined) throw new Error('there are three nodes');
      const tenant = newId('tn');
      await save(saver, tenant, 'instructions');
      const outcome = await archiveAgent(archiver, { ref: { tenant, kind: 'agent', id: 'agent' }, ...by });
      outcomes.push(outcome.kind === 'rejected' ? outcome.code : outcome.kind);
    }
    expect(Map.groupBy(outcomes, (outcome) => outcome).get('done')).toHaveLength(ROUNDS);
  },
);
