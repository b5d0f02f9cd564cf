import { runInNewContext } from 'node:vm';
import { setFlagsFromString } from 'node:v8';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { KeyedQueue, QueueFullError, WaitedTooLongError } from './keyed-queue.ts';

/** A task that continues until it is told to end. */
function gate(): {
  task: () => Promise<string>;
  started: () => boolean;
  open: (value: string) => void;
  fail: (error: Error) => void;
} {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  let began = false;
  return {
    task: async () => {
      began = true;
      return await promise;
    },
    started: () => began,
    open: resolve,
    fail: reject,
  };
}

/** Lets everything run that can. */
const settled = async (): Promise<void> => await new Promise((resolve) => setImmediate(resolve));

test('tasks of one key run one after the other, in the order of their calls', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.constantFrom('a', 'b', 'c'), { maxLength: 30 }),
      fc.scheduler(),
      async (keys, scheduler) => {
        const queue = new KeyedQueue({ lengthMax: 100, waitMs: 10_000 });
        const running = new Set<string>();
        const log: string[] = [];
        const runs = keys.map(
          async (key, n) =>
            await queue.run(key, async () => {
              expect(running.has(key)).toBe(false);
              running.add(key);
              await scheduler.schedule(Promise.resolve(), `${key}${n}`);
              running.delete(key);
              log.push(`${key}${n}`);
              return n;
            }),
        );
        const results = Promise.all(runs);
        await scheduler.waitFor(results);
        expect(await results).toEqual(keys.map((_, n) => n));
        for (const key of new Set(keys)) {
          expect(log.filter((entry) => entry.startsWith(key))).toEqual(
            keys.flatMap((each, n) => (each === key ? [`${key}${n}`] : [])),
          );
        }
      },
    ),
  );
});

test('different keys do not wait for each other', async () => {
  const queue = new KeyedQueue({ lengthMax: 10, waitMs: 10_000 });
  const [a, b, a2] = [gate(), gate(), gate()];
  const runs = [queue.run('a', a.task), queue.run('b', b.task), queue.run('a', a2.task)];
  await settled();
  expect([a.started(), b.started(), a2.started()]).toEqual([true, true, false]);
  b.open('b');
  expect(await runs[1]).toBe('b');
  a.open('a');
  await settled();
  expect(a2.started()).toBe(true);
  a2.open('a2');
  expect(await Promise.all(runs)).toEqual(['a', 'b', 'a2']);
});

test('a task that fails, or throws at once, fails alone', async () => {
  const queue = new KeyedQueue({ lengthMax: 10, waitMs: 10_000 });
  const first = gate();
  const outcomes = Promise.allSettled([
    queue.run('a', first.task),
    queue.run('a', () => {
      throw new Error('at once');
    }),
    queue.run('a', async () => await Promise.resolve('third')),
  ]);
  first.fail(new Error('later'));
  expect(await outcomes).toMatchObject([
    { status: 'rejected', reason: { message: 'later' } },
    { status: 'rejected', reason: { message: 'at once' } },
    { status: 'fulfilled', value: 'third' },
  ]);
});

test('a full queue refuses at once, for its key only, until there is room', async () => {
  const queue = new KeyedQueue({ lengthMax: 2, waitMs: 10_000 });
  const [first, second] = [gate(), gate()];
  const runs = [queue.run('a', first.task), queue.run('a', second.task)];
  let ran = false;
  const refused = queue.run('a', async () => {
    ran = true;
    await Promise.resolve();
  });
  await expect(refused).rejects.toThrow(new QueueFullError('a'));
  await expect(refused).rejects.toMatchObject({ key: 'a' });
  expect(ran).toBe(false);
  expect(await queue.run('b', async () => await Promise.resolve('b'))).toBe('b');
  first.open('1');
  expect(await runs[0]).toBe('1');
  const third = queue.run('a', async () => await Promise.resolve('3'));
  second.open('2');
  expect(await Promise.all([runs[1], third])).toEqual(['2', '3']);
});

test('urgent work is never refused, and goes before what waits, in its own order', async () => {
  const queue = new KeyedQueue({ lengthMax: 2, waitMs: 10_000 });
  const first = gate();
  const order: string[] = [];
  const noting = (name: string) => async () => await Promise.resolve(void order.push(name));
  const runs: Promise<unknown>[] = [queue.run('a', first.task), queue.run('a', noting('waiting'))];
  await expect(queue.run('a', noting('refused'))).rejects.toThrow(QueueFullError);
  for (const name of ['urgent 1', 'urgent 2', 'urgent 3']) {
    runs.push(queue.run('a', noting(name), { urgent: true }));
  }
  first.open('1');
  await Promise.all(runs);
  expect(order).toEqual(['urgent 1', 'urgent 2', 'urgent 3', 'waiting']);
});

test('a task that has waited too long is never begun; urgent work waits as long as it takes', async () => {
  const queue = new KeyedQueue({ lengthMax: 10, waitMs: 20 });
  const first = gate();
  const begun: string[] = [];
  const noting = (name: string) => async () => await Promise.resolve(void begun.push(name));
  const running = queue.run('a', first.task);
  const urgent = queue.run('a', noting('urgent'), { urgent: true });
  const waiting = ['b', 'c', 'd'].map(async (name) => await queue.run('a', noting(name)));
  for (const outcome of await Promise.allSettled(waiting)) {
    expect(outcome).toMatchObject({ status: 'rejected', reason: new WaitedTooLongError('a') });
  }
  first.open('1');
  await Promise.all([running, urgent]);
  expect(await queue.run('a', async () => await Promise.resolve('next'))).toBe('next');
  expect(begun).toEqual(['urgent']);
});

test('a key that has nothing to do takes no memory', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const queue = new KeyedQueue({ lengthMax: 10, waitMs: 10_000 });
  const used = (): number => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const round = async (from: number, count: number): Promise<void> => {
    for (let n = from; n < from + count; n++) {
      const key = `${n}-${'x'.repeat(10_000)}`;
      await Promise.allSettled([
        queue.run(key, async () => await Promise.resolve()),
        queue.run(key, async () => await Promise.reject(new Error('e'))),
      ]);
    }
  };
  await round(0, 200);
  const before = used();
  // 4,000 keys of 10 kB would be 40 MB.
  await round(200, 4_000);
  expect(used() - before).toBeLessThan(10_000_000);
  expect(await queue.run('last', async () => await Promise.resolve('runs'))).toBe('runs');
});
