import { expect, test } from 'vitest';
import { capturedLog } from '../../test/support/logger.ts';
import { until } from '../../test/support/wait-until.ts';
import type { ExecutorRef, OpenAction } from '../projections/actions/open-actions.ts';
import type { ActionView } from '../projections/actions/views.ts';
import { WorkSignals } from './work-signals.ts';

const executor: ExecutorRef = { tenantId: 'tn_1', agentId: 'a' };

const actionOf = (n: number): OpenAction => ({
  ...{ actionId: `ac_${n}`, sessionId: 's', generation: 1, status: 'pending' },
  ...{ createdAt: '2026-01-01T00:00:00.000Z', requestId: null, position: n },
});

/** Signals of actions that are pending until they are taken; while they are held up, executors hear of none. */
function signalling() {
  const pending = new Map<string, OpenAction>();
  const ended = new Set<string>();
  const held: { until: Promise<undefined>; shown: number } = { until: Promise.resolve(undefined), shown: 0 };
  let onOffer: (action: OpenAction) => void = () => undefined;
  const signals = new WorkSignals({
    open: {
      reached: async () => await Promise.resolve(),
      pending: (_, limit) => [...pending.values()].slice(0, limit),
      find: (_, actionId) => pending.get(actionId) ?? null,
      listen: (_, listener) => {
        onOffer = listener;
        return () => undefined;
      },
    },
    show: async ({ agentId }, actions) => {
      held.shown++;
      await held.until;
      const view = { agentId, kind: 'tool', turnId: 'tu', callId: 'c', input: {} } as const;
      return actions.flatMap((one): ActionView[] => (ended.has(one.actionId) ? [] : [{ ...one, ...view }]));
    },
    logger: capturedLog().logger,
  });
  const offer = (n: number): void => {
    pending.set(actionOf(n).actionId, actionOf(n));
    onOffer(actionOf(n));
  };
  const told: (readonly string[])[] = [];
  signals.listen(executor, (actions) => told.push(actions.map(({ actionId }) => actionId)));
  /** Offers this many actions while the one before them is being shown. Returns the function that lets that one through. */
  const offerAmid = async (count: number): Promise<() => void> => {
    await until('there is nothing yet', () => held.shown === 1);
    const release = Promise.withResolvers<undefined>();
    held.until = release.promise;
    offer(0);
    await until('the first is being shown', () => held.shown === 2);
    for (let n = 1; n <= count; n++) offer(n);
    return () => release.resolve(undefined);
  };
  return { signals, pending, ended, held, told, offerAmid };
}

const NAMES = Array.from({ length: 20 }, (_, n) => actionOf(n + 1).actionId);

test('of more actions than a signal names, executors hear of the others when the first are taken before it', async () => {
  const { signals, pending, told, offerAmid } = signalling();
  const release = await offerAmid(21);
  for (const name of NAMES) pending.delete(name);
  release();
  await until('the last is told', () => told.flat().includes('ac_21'), 5_000);
  expect(told).toEqual([['ac_0'], ['ac_0', 'ac_21']]);
  signals.stop();
});

test('and also when the list of open actions learns later than their sessions that the first are taken', async () => {
  const { signals, pending, ended, held, told, offerAmid } = signalling();
  const release = await offerAmid(21);
  pending.delete('ac_0');
  for (const name of NAMES) ended.add(name);
  release();
  await until('none is left to tell', () => held.shown >= 4);
  for (const name of NAMES) pending.delete(name);
  await until('the last is told', () => told.flat().includes('ac_21'), 5_000);
  expect(told).toEqual([['ac_0'], ['ac_21']]);
  signals.stop();
});

test('what a signal has room for is told once', async () => {
  const { signals, told, offerAmid } = signalling();
  (await offerAmid(19))();
  await until('the others are told', () => told.length === 2);
  expect(told).toEqual([['ac_0'], NAMES.slice(0, 19)]);
  signals.stop();
});
