import { expect, test } from 'vitest';
import { FairBudget } from './fair-budget.ts';

const NEVER = new AbortController().signal;

/** Takes in the order of the list, and records the order of the grants. */
function takers(budget: FairBudget) {
  const granted: string[] = [];
  const given: Record<string, () => void> = {};
  const take = (name: string, label: string, amount = 1, signal = NEVER): Promise<void> =>
    budget.take(name, amount, signal).then((giveBack) => {
      granted.push(label);
      given[label] = giveBack;
    });
  const settle = async (): Promise<void> => await new Promise((resolve) => setImmediate(resolve));
  return { granted, given, take, settle };
}

test('names take turns, however many of one wait', async () => {
  const { granted, given, take, settle } = takers(new FairBudget({ total: 2, perName: 2 }));
  for (const label of ['a1', 'a2', 'a3', 'a4']) void take('a', label);
  void take('b', 'b1');
  void take('c', 'c1');
  await settle();
  expect(granted).toEqual(['a1', 'a2']);
  given['a1']?.();
  await settle();
  given['a2']?.();
  await settle();
  given['b1']?.();
  await settle();
  // No caller waits longer than one turn of each of the others.
  expect(granted).toEqual(['a1', 'a2', 'b1', 'a3', 'c1']);
});

test('a name holds no more than its share, and no less than one', async () => {
  const { granted, given, take, settle } = takers(new FairBudget({ total: 10, perName: 4 }));
  for (const label of ['a1', 'a2', 'a3']) void take('a', label, 2);
  void take('b', 'b1', 100);
  await settle();
  expect(granted).toEqual(['a1', 'a2', 'b1']);
  given['b1']?.();
  await settle();
  expect(granted).toEqual(['a1', 'a2', 'b1']);
  given['a1']?.();
  await settle();
  expect(granted).toEqual(['a1', 'a2', 'b1', 'a3']);
});

test('what is large is not passed by what is small for ever', async () => {
  const { granted, given, take, settle } = takers(new FairBudget({ total: 4, perName: 4 }));
  void take('a', 'a1', 3);
  void take('b', 'b1', 4);
  void take('c', 'c1', 1);
  await settle();
  expect(granted).toEqual(['a1']);
  given['a1']?.();
  await settle();
  expect(granted).toEqual(['a1', 'b1']);
  given['b1']?.();
  await settle();
  expect(granted).toEqual(['a1', 'b1', 'c1']);
});

test('who gives up waiting takes nothing, and lets the next one through', async () => {
  const { granted, given, take, settle } = takers(new FairBudget({ total: 1, perName: 1 }));
  const gone = new AbortController();
  void take('a', 'a1');
  const waits = take('b', 'b1', 1, gone.signal);
  void take('c', 'c1');
  await settle();
  gone.abort(new Error('left'));
  await expect(waits).rejects.toThrow('left');
  given['a1']?.();
  await settle();
  expect(granted).toEqual(['a1', 'c1']);
  await expect(take('d', 'd1', 1, gone.signal)).rejects.toThrow('left');
});

test('a name that is to leave as much as it holds has half of it alone, and the next one finds some at once', async () => {
  const { granted, given, take, settle } = takers(new FairBudget({ total: 8, perName: 8, leavesAsMuch: true }));
  for (let n = 1; n <= 8; n++) void take('a', `a${n}`);
  await settle();
  expect(granted).toEqual(['a1', 'a2', 'a3', 'a4']);
  for (let n = 1; n <= 8; n++) void take('b', `b${n}`);
  for (const name of ['c', 'd']) void take(name, `${name}1`);
  await settle();
  expect(granted.slice(4)).toEqual(['b1', 'b2', 'c1', 'd1']);
  // The last of it is for those with none.
  given['a1']?.();
  await settle();
  expect(granted).toHaveLength(8);
  void take('e', 'e1');
  await settle();
  expect(granted.at(-1)).toBe('e1');
});

test('what can be had at once is had at once, and none that waits is overtaken', async () => {
  const budget = new FairBudget({ total: 2, perName: 2 });
  const { granted, take, settle } = takers(budget);
  const first = budget.takeNow('a', 1);
  expect(first).not.toBeNull();
  expect(budget.takeNow('a', 2)).toBeNull();
  void take('b', 'b1', 2);
  await settle();
  expect(budget.takeNow('c', 1), 'b waits for what is free').toBeNull();
  first?.();
  await settle();
  expect(granted).toEqual(['b1']);
});
