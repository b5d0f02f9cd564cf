import { expect, test } from 'vitest';
import { SandboxChild } from './child-process.ts';
import { ChildPool } from './pool.ts';

const { signal } = new AbortController();
const LIMITS = { waiting: 100, waitingPerTenant: 100, idleMs: 3_600_000, callsPerChild: 1_000 };
const TENANTS = ['a', 'b', 'c', 'd'];

/** Processes that do nothing until they are ended, in a pool; and how many have been started. */
function poolOf(bounds: { readonly children: number; readonly childrenIdle: number }) {
  let started = 0;
  const pool = new ChildPool({ ...LIMITS, childrenPerTenant: 1, ...bounds }, async () => {
    started += 1;
    return await Promise.resolve(new SandboxChild({ file: '/bin/cat', args: [] }));
  });
  const call = async (tenant: string) => {
    const child = await pool.take(tenant, signal);
    await pool.give(child, true);
    return child;
  };
  return { pool, call, started: () => started };
}

test('tenants that call in turns keep their processes, as many as may be idle', async () => {
  const { pool, call, started } = poolOf({ children: 1, childrenIdle: 4 });
  try {
    const first = [];
    for (const tenant of TENANTS) first.push(await call(tenant));
    for (let round = 0; round < 3; round++) {
      const again = [];
      for (const tenant of TENANTS) again.push(await call(tenant));
      expect(again).toEqual(first);
      expect(first.map(({ tenant }) => tenant)).toEqual(TENANTS);
    }
    // One is ready for the next tenant.
    expect(started()).toBe(TENANTS.length + 1);
    expect(pool.counts).toEqual({ children: TENANTS.length + 1, busy: 0, waiting: 0 });
  } finally {
    await pool.stop();
  }
});

test('the process that has been idle for longest makes room, and no tenant has the process of another', async () => {
  const { pool, call } = poolOf({ children: 1, childrenIdle: 2 });
  try {
    const [a, b] = [await call('a'), await call('b')];
    await call('c');
    expect(await call('b')).toBe(b);
    await a.ended;
    expect(await call('a')).not.toBe(a);
    expect(pool.counts.children).toBeLessThanOrEqual(3);
    for (const tenant of ['d', 'e', 'a', 'f']) expect((await call(tenant)).tenant).toBe(tenant);
    expect(pool.counts.children).toBeLessThanOrEqual(3);
  } finally {
    await pool.stop();
  }
});
