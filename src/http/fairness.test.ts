import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Caller } from '../auth/caller.ts';
import { Fairness } from './fairness.ts';
import { ProblemError } from './problem.ts';

const LIMITS = { credentialPerSecond: 5, tenantPerSecond: 8, failuresPerSecond: 2 };

function caller(credential: string, tenantId = 'tn_1'): Caller {
  const nothing = { subject: null, scopes: [], agents: null, sandboxes: null, expiresAt: null };
  return { kind: 'application', tenantId, principalId: 'app', ...nothing, credential };
}

/** The seconds of `Retry-After` for each of `count` requests; 0: it was admitted. */
function admit(fairness: Fairness, who: Caller, count: number): number[] {
  return Array.from({ length: count }, () => {
    try {
      fairness.admit(who);
      return 0;
    } catch (error) {
      if (!(error instanceof ProblemError) || error.problem.code !== 'rate_limited') throw error;
      return Number(error.problem.headers?.['retry-after']);
    }
  });
}

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

describe('requests', () => {
  test('two seconds of a credential at once, then as many a second', () => {
    const fairness = new Fairness(LIMITS, Date.now);
    expect(admit(fairness, caller('a'), 12)).toEqual([...Array.from({ length: 10 }, () => 0), 1, 1]);
    vi.advanceTimersByTime(1_000);
    expect(admit(fairness, caller('a'), 6)).toEqual([0, 0, 0, 0, 0, 1]);
  });

  test('the credentials of a tenant share, tenants do not', () => {
    const fairness = new Fairness(LIMITS, Date.now);
    expect(admit(fairness, caller('a'), 10)).not.toContain(1);
    expect(admit(fairness, caller('b'), 7)).toEqual([0, 0, 0, 0, 0, 0, 1]);
    expect(admit(fairness, caller('c', 'tn_2'), 10)).not.toContain(1);
  });

  test('what a credential is refused its tenant does not pay', () => {
    const fairness = new Fairness(LIMITS, Date.now);
    admit(fairness, caller('a'), 100);
    expect(admit(fairness, caller('b'), 6)).toEqual([0, 0, 0, 0, 0, 0]);
  });
});

describe('failed authentications', () => {
  /** When each of `count` answers at the same time goes out, ms from now; -1: it was rate limited. */
  async function answers(fairness: Fairness, address: string, count: number): Promise<number[]> {
    const began = Date.now();
    const waits = Array.from({ length: count }, async () => {
      const limited = await fairness.refused(address).then(
        () => false,
        () => true,
      );
      return limited ? -1 : Date.now() - began;
    });
    await vi.advanceTimersByTimeAsync(60_000);
    return await Promise.all(waits);
  }

  test('queue up behind the burst, one behind the other, up to two seconds', async () => {
    const fairness = new Fairness(LIMITS, Date.now);
    const times = await answers(fairness, '1.1.1.1', 10);
    expect(times).toEqual([0, 0, 0, 0, 500, 1_000, 1_500, 2_000, 2_000, 2_000]);
  });

  test('of one address hold up no other', async () => {
    const fairness = new Fairness(LIMITS, Date.now);
    const [many, few] = await Promise.all([answers(fairness, '1.1.1.1', 50), answers(fairness, '2.2.2.2', 4)]);
    expect(many.at(-1)).toBe(2_000);
    expect(few).toEqual([0, 0, 0, 0]);
  });

  test('past a thousand held answers the next are told to go away', async () => {
    const fairness = new Fairness(LIMITS, Date.now);
    const times = await answers(fairness, '1.1.1.1', 1_010);
    expect(times.filter((ms) => ms === -1)).toHaveLength(6);
    expect(await answers(fairness, '1.1.1.1', 1)).toEqual([0]);
  });
});
