import { expect, test } from 'vitest';
import { FairTurns, QueueFullError } from './fair-turns.ts';

const { signal } = new AbortController();

/** Asks for a turn and notes when it comes. */
function asking(turns: FairTurns, came: string[]) {
  return (tenant: string, name = tenant): void => {
    void turns.take(tenant, signal).then(() => came.push(name));
  };
}

/** Until all that can happen now has happened. */
const settled = async () => await new Promise(setImmediate);

test('tenants take turns, and none has more than its share at a time', async () => {
  const turns = new FairTurns({ atOnce: 3, perTenant: 2, waiting: 100, waitingPerTenant: 100, keptMs: () => 0 });
  const came: string[] = [];
  const ask = asking(turns, came);
  for (const name of ['a1', 'a2', 'a3', 'a4']) ask('a', name);
  await settled();
  expect(came).toEqual(['a1', 'a2']);
  ask('b', 'b1');
  ask('b', 'b2');
  ask('c', 'c1');
  await settled();
  expect(came).toEqual(['a1', 'a2', 'b1']);
  turns.end('b');
  turns.end('a');
  await settled();
  expect(came.slice(3).toSorted()).toEqual(['b2', 'c1']);
  turns.end('a');
  await settled();
  expect(came.slice(5)).toEqual(['a3']);
  expect([turns.busy, turns.waiting]).toEqual([3, 1]);
});

test('who has given up is passed over, and too many are refused', async () => {
  const turns = new FairTurns({ atOnce: 1, perTenant: 1, waiting: 3, waitingPerTenant: 2, keptMs: () => 0 });
  await turns.take('a', signal);
  const controller = new AbortController();
  const givenUp = turns.take('a', controller.signal);
  const next = turns.take('a', signal);
  await expect(turns.take('a', signal)).rejects.toBeInstanceOf(QueueFullError);
  const last = turns.take('b', signal);
  await expect(turns.take('c', signal)).rejects.toBeInstanceOf(QueueFullError);
  controller.abort(new Error('given up'));
  await expect(givenUp).rejects.toThrow('given up');
  turns.end('a');
  await Promise.race([next, last]);
  const refused = turns.take('d', signal);
  turns.refuse(new Error('stopping'));
  await expect(refused).rejects.toThrow('stopping');
  expect(turns.waiting).toBe(0);
});

test('a tenant that has just begun may begin again before it is the turn of another', async () => {
  const turns = new FairTurns({
    atOnce: 1,
    perTenant: 1,
    waiting: 100,
    waitingPerTenant: 100,
    keptMs: () => 3_600_000,
  });
  const came: string[] = [];
  const ask = asking(turns, came);
  ask('a', 'a1');
  ask('b', 'b1');
  ask('a', 'a2');
  await settled();
  for (const tenant of ['a', 'a', 'b']) {
    turns.end(tenant);
    await settled();
  }
  expect(came).toEqual(['a1', 'a2', 'b1']);
  expect([turns.busy, turns.waiting]).toEqual([0, 0]);
});

test('the turn of a tenant that waits for a process begins when it has one', async () => {
  let nowMs = 0;
  const options = {
    atOnce: 1,
    perTenant: 1,
    waiting: 100,
    waitingPerTenant: 100,
    keptMs: () => 300,
    nowMs: () => nowMs,
  };
  const turns = new FairTurns(options);
  const came: string[] = [];
  const ask = asking(turns, came);
  ask('a', 'a1');
  await settled();
  for (const name of ['b1', 'a2', 'a3', 'a4']) ask(name.charAt(0), name);
  nowMs = 2_000;
  turns.restart('a');
  for (const tookMs of [100, 150, 100]) {
    nowMs += tookMs;
    turns.end('a');
    await settled();
  }
  expect(came).toEqual(['a1', 'a2', 'a3', 'b1']);
});

const CALL_MS = 10;
const KEPT_MS = 300;
/** Calls that fit into one turn of a tenant, in one process. */
const IN_A_TURN = KEPT_MS / CALL_MS;

/** Tenants whose calls take equally long, on a clock of their own: who begins when, one after the other. */
class Busy {
  readonly begun: string[] = [];
  /** Begins of one tenant's call right after another's end: each costs a process. */
  changes = 0;
  readonly #turns: FairTurns;
  readonly #running: { readonly tenant: string; readonly endsMs: number }[] = [];
  #nowMs = 0;

  constructor(atOnce: number, perTenant: number) {
    const waiting = { waiting: 10_000, waitingPerTenant: 10_000 };
    this.#turns = new FairTurns({ atOnce, perTenant, ...waiting, keptMs: () => KEPT_MS, nowMs: () => this.#nowMs });
  }

  ask(tenant: string, times: number): void {
    for (let n = 0; n < times; n++) {
      void this.#turns.take(tenant, signal).then(() => {
        this.begun.push(tenant);
        this.#running.push({ tenant, endsMs: this.#nowMs + CALL_MS });
      });
    }
  }

  /** Until so many have begun. */
  async until(count: number): Promise<void> {
    await settled();
    while (this.begun.length < count) {
      const first = this.#running.shift();
      if (first === undefined) throw new Error('nothing runs any more');
      this.#nowMs = first.endsMs;
      const before = this.begun.length;
      this.#turns.end(first.tenant);
      await settled();
      this.changes += this.begun.slice(before).filter((tenant) => tenant !== first.tenant).length;
    }
  }
}

test('of ten busy tenants each begins as many calls as the others, but for a turn, in few processes', async () => {
  const [tenants, calls] = [10, 120];
  const busy = new Busy(4, 2);
  const names = Array.from({ length: tenants }, (_, n) => `t${n}`);
  for (let n = 0; n < calls; n++) for (const name of names) busy.ask(name, 1);
  // To have more of them helps to nothing.
  busy.ask('t0', 5 * calls);
  await busy.until(tenants * calls);
  const counts = new Map(names.map((name) => [name, 0]));
  let most = 0;
  for (const name of busy.begun.slice(0, (tenants - 1) * calls)) {
    counts.set(name, (counts.get(name) ?? 0) + 1);
    most = Math.max(most, Math.max(...counts.values()) - Math.min(...counts.values()));
  }
  // A turn in each of the two processes that one tenant may have.
  expect(most).toBeLessThanOrEqual(2 * (IN_A_TURN + 1));
  expect(busy.changes).toBeLessThanOrEqual((tenants * calls) / IN_A_TURN);
});

test('a tenant that comes to nine busy ones begins after a turn of each, and the turns that were under way', async () => {
  const atOnce = 4;
  const busy = new Busy(atOnce, 2);
  for (let n = 1; n < 10; n++) busy.ask(`t${n}`, 150);
  await busy.until(200);
  busy.ask('late', 1);
  await busy.until(200 + (9 + atOnce) * (IN_A_TURN + 1));
  expect(busy.begun.slice(200)).toContain('late');
});
