import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { answered, Gate, TestModel, TestNodes, untilAborted } from '../support/engine.ts';
import type { NodeOptions, TestNode } from '../support/engine.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { until } from '../support/wait-until.ts';

// Hundreds of turns, which take half a minute on a loaded machine.
vi.setConfig({ testTimeout: 180_000 });

/** One tenant's turns do not stop another's, whatever becomes of its model calls. */
const nodes = new TestNodes();
let disposables = new AsyncDisposableStack();
let log: TestLog;

/** Turns that a test leaves behind would be taken up in the next one. */
beforeEach(async () => {
  disposables = new AsyncDisposableStack();
  log = disposables.use(await openLog(disposables.use(await TestNats.start()).url));
});

afterEach(async () => {
  await nodes.end();
  await disposables.disposeAsync();
});

let tests = 0;
let made = 0;
const names = (): { hanging: string; polite: string } => ({ hanging: `tn_h${++tests}`, polite: `tn_p${tests}` });

const isHanging = (tenant: string): boolean => tenant.startsWith('tn_h');

/** Hangs for one kind of tenant, answers the others. */
const model = (): TestModel =>
  new TestModel(async (request, signal): Promise<ModelOutcome> =>
    isHanging(request.tenant) ? await untilAborted(signal) : answered('done'),
  );

async function node(options: NodeOptions = {}): Promise<TestNode> {
  const started = nodes.add(log, { model: model(), drainMs: 200, ...options });
  await started.start();
  started.dispatcher.start();
  return started;
}

async function open(at: TestNode, tenant: string, limits = {}): Promise<AggregateRef> {
  const ref: AggregateRef = { tenant, kind: 'session', id: `fair/${++made}` };
  await at.openSession(ref, limits);
  return ref;
}

const ms = (since: number): number => Math.round(performance.now() - since);

/** Sends a message to `count` new sessions of a tenant whose calls hang. */
async function hang(at: TestNode, tenant: string, count: number, limits = {}): Promise<AggregateRef[]> {
  const refs = await Promise.all(Array.from({ length: count }, async () => await open(at, tenant, limits)));
  await Promise.all(refs.map(async (ref) => await at.message(ref)));
  return refs;
}

const errorOf = (code: string) => ({ type: 'turn.failed', data: { error: { code } } });

describe('a tenant with more hanging calls than the process has places', () => {
  test('leaves places to others: their turns run, wherever they were accepted', async () => {
    const { hanging, polite } = names();
    const full = await node({ concurrency: 256, tenantConcurrency: 192 });
    await hang(full, hanging, 300);
    await until('it has its share', () => full.worker.active === 192);
    const began = performance.now();
    const [here, queued] = [await open(full, polite), await open(full, polite)];
    await full.message(here);
    await full.message(queued, 'queue');
    expect((await full.turnEnds(here)).type).toBe('turn.completed');
    expect((await full.turnEnds(queued)).type).toBe('turn.completed');
    process.stdout.write(`a polite tenant's turns beside 300 hanging ones: ${ms(began)} ms\n`);
    // What waits of the hanging tenant is neither run nor forgotten.
    await until('it has its share still', () => full.worker.active === 192);
    expect(full.dispatcher.openTurns).toBeGreaterThanOrEqual(300);
  });

  test('that are several: one who holds nothing finds a place, whatever they hold', async () => {
    const all = await node({ concurrency: 64, tenantConcurrency: 48 });
    for (const { hanging } of [names(), names(), names()]) await hang(all, hanging, 60);
    await until('each has been offered what there is', () => all.worker.active === 60);
    const ref = await open(all, names().polite);
    await all.message(ref, 'queue');
    expect((await all.turnEnds(ref)).type).toBe('turn.completed');
    expect(all.worker.active).toBeLessThan(64);
  });

  test('takes what another process has free', async () => {
    const { hanging } = names();
    const full = await node({ concurrency: 4, tenantConcurrency: 3 });
    await hang(full, hanging, 3);
    const other = await node({ concurrency: 40, tenantConcurrency: 30 });
    const more = await Promise.all(Array.from({ length: 20 }, async () => await open(full, hanging)));
    const began = performance.now();
    for (const ref of more) await full.message(ref);
    await until('all of them run', () => other.worker.active === 20);
    expect(full.worker.active).toBe(3);
    process.stdout.write(`20 turns that find no place at one of two nodes: ${ms(began)} ms\n`);
  });
});

describe('with every place taken', () => {
  test('deadlines, cancels and claims of the dead are seen to at once', async () => {
    const { hanging } = names();
    const full = await node({ concurrency: 1, tenantConcurrency: 1 });
    const [running] = await hang(full, hanging, 1);
    await until('the place is taken', () => full.worker.active === 1);
    // One that waits for a place, and is over before it gets one.
    const late = await open(full, hanging, { maxTurnSeconds: 1 });
    await full.message(late, 'queue');
    const began = performance.now();
    expect(await full.turnEnds(late)).toMatchObject(errorOf('turn_timeout'));
    process.stdout.write(`a deadline of 1 s with no place free: after ${ms(began)} ms\n`);
    // One whose worker has died, and that is taken up by another before it is over.
    const dead = nodes.add(log, { model: model(), drainMs: 200 });
    await dead.start();
    const orphan = await open(dead, hanging, { maxTurnSeconds: 30 });
    await dead.message(orphan);
    await until('it runs', () => dead.worker.active === 1);
    await dead.fallSilent();
    // And one that waits for a place and is cancelled.
    const unwanted = await open(full, hanging);
    await full.message(unwanted, 'queue');
    await full.cancel(unwanted);
    expect((await full.turnEnds(unwanted)).type).toBe('turn.cancelled');
    if (running === undefined) throw new Error('nothing runs');
    await full.cancel(running);
    expect((await full.turnEnds(running)).type).toBe('turn.cancelled');
    await until('the place goes to the turn of the dead', async () => {
      const types = await full.types(orphan);
      return types.filter((type) => type === 'segment.claimed').length === 2;
    });
    expect(await full.turnEnds(orphan, 60_000)).toMatchObject(errorOf('turn_timeout'));
  });

  test('turns wait without being asked about again and again, and run as soon as there is a place', async () => {
    const { hanging, polite } = names();
    const answer = new Gate();
    let looks = 0;
    const full = nodes.add(log, {
      concurrency: 1,
      model: new TestModel(async (request, signal) => {
        if (!isHanging(request.tenant)) return answered('done');
        await Promise.race([answer.opened, untilAborted(signal)]);
        return answered('at last');
      }),
    });
    await full.start();
    full.dispatcher.start();
    const [running] = await hang(full, hanging, 1);
    const refs = await Promise.all(Array.from({ length: 100 }, async () => await open(full, polite)));
    const refresh = full.sessions.refresh.bind(full.sessions);
    full.sessions.refresh = async (ref) => {
      looks++;
      return await refresh(ref);
    };
    await Promise.all(refs.map(async (ref) => await full.message(ref)));
    await until('they have been offered', () => full.dispatcher.unattendedTurns > 0);
    // Each of the 64 that are offered at a time goes back twice at first, and is asked about every few seconds then; to
    // go back for ever would be 40 looks a second for each.
    expect(looks).toBeLessThan(100 * 30);
    const began = performance.now();
    answer.open();
    if (running !== undefined) await full.turnEnds(running);
    for (const ref of refs) expect((await full.turnEnds(ref)).type).toBe('turn.completed');
    process.stdout.write(`100 turns through one place: ${ms(began)} ms; ${looks} looks\n`);
  });
});
