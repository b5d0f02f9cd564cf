import { expect, test } from 'vitest';
import { tenantType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { deleteTenant } from '#src/commands/tenant/delete-tenant.ts';
import type { DeleteTenantDeps, DeleteTenantInput } from '#src/commands/tenant/delete-tenant.ts';
import { reopenOverdue } from '#src/commands/tenant/reopen-tenant.ts';
import { decideCreateTenant } from '#src/domain/tenant/decide.ts';
import { DRAIN_MARGIN_MS } from '#src/domain/tenant/limits.ts';
import { UnavailableError } from '#src/lib/unavailable.ts';
import type { EventStore } from '#src/streams/event-store.ts';
import { MemoryStreams } from '#src/streams/memory/streams.ts';
import { newBucket, openMemoryLog } from '../support/memory-log.ts';
import { overriding } from '../support/overriding.ts';
import { until } from '../support/wait-until.ts';

const AWAY = new UnavailableError('database', 'it is away');
const HASH = 'a'.repeat(64);
const TENANT = 'tn_1';
const REF = { tenant: TENANT, kind: 'tenant', id: TENANT } as const;

/** A tenant on one node, with a clock, sessions and a directory as the test says. */
async function made() {
  const now = { ms: Date.parse('2026-01-01T00:00:00.000Z') };
  const clock = (): number => now.ms;
  const log = await openMemoryLog(new MemoryStreams(1, clock), newBucket());
  const loop = new CommandLoop(clock, () => 1);
  const nothing = async (): Promise<void> => await Promise.resolve();
  const says = {
    active: async (): Promise<readonly string[]> => await Promise.resolve(['s']),
    append: nothing,
    publish: nothing,
  };
  const append: EventStore['append'] = async (...args) => {
    await says.append();
    return await log.store.append(...args);
  };
  const store = overriding(log.store, { append });
  const tenants = new Repository({ type: tenantType, store, cacheBytes: 1_000_000 });
  const erased: string[] = [];
  const deps: DeleteTenantDeps = {
    ...{ loop, tenants, clock, isErasing: () => false },
    publish: async () => await says.publish(),
    activeSessions: async () => await says.active(),
    cancelTurn: async () => await Promise.resolve(),
    erase: async (id) => await Promise.resolve(void erased.push(id)),
  };
  await loop.execute(tenants, REF, {
    ...{ actor: 'admin', causation: 'test' },
    decide: (state) =>
      decideCreateTenant(state, {
        ...{ tenantId: TENANT, name: 'A tenant', principalId: 'app', bodyHash: HASH, idempotencyKey: null },
        ...{ credentialHash: HASH, studioCredentialHash: 'b'.repeat(64) },
      }),
  });
  const remove = async (activeWork: DeleteTenantInput['activeWork'], timeoutMs = 60_000) =>
    await deleteTenant(deps, { tenantId: TENANT, activeWork, timeoutMs, actor: 'admin', causation: 'test' });
  const status = async (): Promise<string> => (await tenants.load(REF)).state.status;
  const sweep = async (): Promise<void> => await reopenOverdue(deps, TENANT);
  return { now, says, erased, remove, status, sweep, [Symbol.dispose]: () => log[Symbol.dispose]() };
}

test.each(['refuse', 'drain', 'cancel'] as const)(
  'a deletion (%s) that cannot count what is active opens the tenant again, and says what failed',
  async (activeWork) => {
    using node = await made();
    node.says.active = async () => await Promise.reject(AWAY);
    await expect(node.remove(activeWork)).rejects.toBe(AWAY);
    expect(await node.status()).toBe('open');
    node.says.active = async () => await Promise.resolve([]);
    expect(await node.remove(activeWork)).toEqual({ kind: 'done' });
    expect([await node.status(), node.erased]).toEqual(['deleting', [TENANT]]);
  },
);

test('where opening it fails as well, the first failure is told, and the sweep opens it when its time is over', async () => {
  using node = await made();
  const { now, says } = node;
  says.active = async () => {
    says.append = async () => await Promise.reject(new UnavailableError('streams', 'the log too'));
    return await Promise.reject(AWAY);
  };
  await expect(node.remove('drain')).rejects.toBe(AWAY);
  expect(await node.status()).toBe('draining');
  says.append = async () => await Promise.resolve();
  now.ms += 60_000 + DRAIN_MARGIN_MS - 1;
  await node.sweep();
  expect(await node.status()).toBe('draining');
  now.ms += 1;
  await node.sweep();
  expect(await node.status()).toBe('open');
});

test('a drain that is recorded and not made known is ended as well', async () => {
  using node = await made();
  let published = 0;
  node.says.publish = async () => await (++published === 1 ? Promise.reject(AWAY) : Promise.resolve());
  await expect(node.remove('refuse')).rejects.toBe(AWAY);
  expect([await node.status(), published]).toEqual(['open', 2]);
});

test('what was counted before a sweep opened the tenant begins no deletion, not in the drain of another request either', async () => {
  using node = await made();
  const counts: ((active: readonly string[]) => void)[] = [];
  node.says.active = async () => await new Promise((resolve) => counts.push(resolve));
  const slow = node.remove('drain', 1_000);
  await until('the first counts', () => counts.length === 1);
  node.now.ms += 1_000 + DRAIN_MARGIN_MS;
  await node.sweep();
  expect(await node.status()).toBe('open');
  const other = node.remove('drain', 1_000);
  await until('the second counts', () => counts.length === 2);
  counts[0]?.([]);
  expect(await slow).toMatchObject({ kind: 'rejected', code: 'active_work' });
  expect([await node.status(), node.erased]).toEqual(['draining', []]);
  counts[1]?.([]);
  expect(await other).toEqual({ kind: 'done' });
});

test('a second request does not end the drain of the first, and what gives up last opens the tenant', async () => {
  using node = await made();
  const draining = node.remove('drain', 1_500);
  await until('it drains', async () => (await node.status()) === 'draining');
  const refused = await node.remove('refuse');
  expect(refused).toMatchObject({ kind: 'rejected', code: 'active_work', details: { activeTurns: 1 } });
  expect(refused).toHaveProperty('message', expect.stringContaining('another request to delete the tenant continues'));
  expect(await node.status()).toBe('draining');
  const longer = node.remove('drain', 3_000);
  expect(await draining).toMatchObject({ code: 'active_work' });
  expect(await node.status()).toBe('draining');
  expect(await longer).toHaveProperty('message', expect.stringContaining('the tenant is open again'));
  expect(await node.status()).toBe('open');
});
