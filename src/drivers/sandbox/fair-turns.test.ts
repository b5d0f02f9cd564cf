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
  const turns = new FairTurns({ atOnce: 3, perTenant: 2, waiting: 100, waitingPerTenant: 100, keptMs: 0 });
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
  const turns = new FairTurns({ atOnce: 1, perTenant: 1, waiting: 3, waitingPerTenant: 2, keptMs: 0 });
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
  const turns = new FairTurns({ atOnce: 1, perTenant: 1, waiting: 100, waitingPerTenant: 100, keptMs: 3_600_000 });
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
