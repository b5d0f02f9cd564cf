import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { WorkShares } from './work-shares.ts';

const WAIT_MS = 500;
const WAITING_MAX = 3;
const never = new AbortController().signal;

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

/** Shares on a loop whose turns have this much work, ms; and what it reported. */
function sharesOf(loop: { turnMs: number }, waitMs = WAIT_MS) {
  const told: (number | 'refused')[] = [];
  const shares = new WorkShares({
    clock: Date.now,
    measureTurn: async () => await Promise.resolve(loop.turnMs),
    waitMs,
    waitingMax: WAITING_MAX,
    onWaited: (ms) => told.push(ms),
    onRefused: () => told.push('refused'),
  });
  return { shares, told };
}

/** As many requests of a tenant as are admitted without waiting, up to 100; ends them with what it returns. */
function fill(shares: WorkShares, tenant: string): (() => void)[] {
  const ends: (() => void)[] = [];
  for (let end = shares.takeNow(tenant); end !== null; end = shares.takeNow(tenant)) {
    ends.push(end);
    if (ends.length === 100) return ends;
  }
  return ends;
}

const settled = async (): Promise<void> => void (await vi.advanceTimersByTimeAsync(0));

/** Two tenants on a full loop, until no more than a few requests are in work. */
async function crowded(waitMs = WAIT_MS) {
  const loop = { turnMs: 50 };
  const made = { loop, ...sharesOf(loop, waitMs) };
  made.shares.takeNow('polite')?.();
  for (let n = 0; n < 20; n++) {
    const ends = fill(made.shares, 'greedy');
    await settled();
    for (const end of ends) end();
    await settled();
  }
  return made;
}

describe('a tenant that is alone', () => {
  test('knows no bound, however full the loop is', async () => {
    const { shares } = sharesOf({ turnMs: 1_000 });
    for (let n = 0; n < 5; n++) {
      expect(fill(shares, 'only')).toHaveLength(100);
      await settled();
    }
  });

  test('neither does one whose neighbour has been silent for a while, and what waits is admitted then', async () => {
    const { shares, told } = await crowded(10_000);
    fill(shares, 'greedy');
    const waiting = shares.take('greedy', never);
    await vi.advanceTimersByTimeAsync(4_000);
    expect(told).toEqual([]);
    await vi.advanceTimersByTimeAsync(2_000);
    expect(await waiting).toBeTypeOf('function');
    expect(fill(shares, 'greedy')).toHaveLength(100);
  });
});

describe('tenants that compete', () => {
  test('have as many in work as they want while the loop keeps up', async () => {
    const { shares } = sharesOf({ turnMs: 0.5 });
    for (let n = 0; n < 5; n++) {
      expect([fill(shares, 'a').length, fill(shares, 'b').length]).toEqual([100, 100]);
      await settled();
    }
  });

  test('have fewer when it does not, and one that has none is admitted at once', async () => {
    const { shares } = await crowded();
    expect(fill(shares, 'greedy')).toHaveLength(2);
    expect(fill(shares, 'polite')).toHaveLength(1);
    expect(fill(shares, 'third')).toHaveLength(1);
  });

  test('the next is one of the tenant that has fewest in work', async () => {
    const { shares } = await crowded();
    const [first, second] = fill(shares, 'greedy');
    const [polite] = fill(shares, 'polite');
    const order: string[] = [];
    for (const name of ['greedy', 'greedy', 'polite']) {
      void shares.take(name, never).then(() => order.push(name));
    }
    polite?.();
    first?.();
    await settled();
    expect(order).toEqual(['polite']);
    second?.();
    await settled();
    expect(order).toEqual(['polite', 'greedy']);
  });

  test('get more as soon as the loop keeps up, although none of them ends', async () => {
    const { shares, loop } = await crowded();
    fill(shares, 'greedy');
    let admitted = 0;
    for (let n = 0; n < WAITING_MAX; n++) void shares.take('greedy', never).then(() => admitted++);
    await settled();
    expect(admitted).toBe(0);
    loop.turnMs = 0;
    await vi.advanceTimersByTimeAsync(WAIT_MS - 1);
    expect(admitted).toBe(WAITING_MAX);
  });
});

describe('what waits', () => {
  const refusal = { problem: { code: 'rate_limited', headers: { 'retry-after': '1' } } };

  test('is bounded in number and in time', async () => {
    const { shares, told } = await crowded();
    fill(shares, 'greedy');
    const waiting = Array.from({ length: WAITING_MAX }, async () => await shares.take('greedy', never));
    const late = Promise.allSettled(waiting);
    await expect(shares.take('greedy', never)).rejects.toMatchObject(refusal);
    await vi.advanceTimersByTimeAsync(WAIT_MS);
    for (const one of await late) expect(one).toMatchObject({ status: 'rejected', reason: refusal });
    expect(told).toEqual(Array.from({ length: WAITING_MAX + 1 }, () => 'refused'));
  });

  test('leaves its place when its client has left', async () => {
    const { shares, told } = await crowded();
    const [first] = fill(shares, 'greedy');
    const gone = new AbortController();
    const left = shares.take('greedy', gone.signal);
    const stays = shares.take('greedy', never);
    gone.abort(new Error('left'));
    await expect(left).rejects.toThrow('left');
    first?.();
    expect(await stays).toBeTypeOf('function');
    expect(told).toEqual([0]);
  });
});
