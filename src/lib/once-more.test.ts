import { expect, test } from 'vitest';
import { OnceMore } from './once-more.ts';

test('what is asked for while it is done is done once more, however often it was asked for', async () => {
  const ends = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let runs = 0;
  const work = new OnceMore(async () => {
    runs++;
    await ends[runs - 1]?.promise;
  });
  const begun = async (): Promise<number> => {
    await new Promise(setImmediate);
    return runs;
  };
  work.ask();
  expect(await begun()).toBe(1);
  for (let n = 0; n < 100; n++) work.ask();
  expect(await begun()).toBe(1);
  ends[0]?.resolve();
  expect(await begun()).toBe(2);
  // What this run has looked at already may have changed.
  work.ask();
  ends[1]?.resolve();
  await work.settled();
  expect(runs).toBe(3);
});
