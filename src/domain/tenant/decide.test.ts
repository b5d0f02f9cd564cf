import { expect, test } from 'vitest';
import { decideCreateTenant, decideSaveKey } from './decide.ts';
import type { CreateTenant } from './decide.ts';
import { tenantEventSchemas } from './events.ts';
import { evolveTenant, initialTenant } from './state.ts';
import type { TenantState } from './state.ts';

const AT = '2026-01-01T00:00:00.000Z';
const sha = (digit: string): string => digit.repeat(64);

const command = (change: Partial<CreateTenant> = {}): CreateTenant => ({
  tenantId: 'tn_1',
  name: 'Acme',
  principalId: 'application',
  credentialHash: sha('a'),
  studioCredentialHash: sha('b'),
  bodyHash: sha('c'),
  idempotencyKey: 'key',
  ...change,
});

function opened(change: Partial<CreateTenant> = {}): TenantState {
  const decision = decideCreateTenant(initialTenant, command(change));
  if (decision.kind !== 'accepted') throw new Error('it was not created');
  const [event] = decision.events;
  if (event === undefined) throw new Error('there is no event');
  expect(tenantEventSchemas['tenant.created'].parse(event.data)).toEqual(event.data);
  return evolveTenant(initialTenant, event, { at: AT, position: 1, index: 0 });
}

test('a tenant is created with its first two keys, of which only hashes are known', () => {
  expect(decideCreateTenant(initialTenant, command())).toEqual({
    kind: 'accepted',
    events: [{ type: 'tenant.created', data: command() }],
    reply: { replayed: false },
  });
  expect(opened()).toMatchObject({
    status: 'open',
    id: 'tn_1',
    name: 'Acme',
    createdAt: AT,
    keys: [
      { id: 'application', role: 'application', hash: sha('a'), createdAt: AT },
      { id: 'studio', role: 'studio', hash: sha('b'), createdAt: AT },
    ],
  });
});

test('the same body again is a replay, whatever its key and credentials', () => {
  for (const change of [{}, { idempotencyKey: null }, { idempotencyKey: 'other' }, { credentialHash: sha('d') }]) {
    expect(decideCreateTenant(opened(), command(change))).toEqual({ kind: 'unchanged', reply: { replayed: true } });
  }
});

test.each([
  ['the same idempotencyKey', 'key', 'key', 'idempotency_conflict'],
  ['another idempotencyKey', 'key', 'other', 'tenant_conflict'],
  ['no idempotencyKey', 'key', null, 'tenant_conflict'],
  ['no idempotencyKey, as before', null, null, 'tenant_conflict'],
] as const)('another body with %s is refused', (_, before, now, code) => {
  const decision = decideCreateTenant(
    opened({ idempotencyKey: before }),
    command({ bodyHash: sha('e'), idempotencyKey: now }),
  );
  expect(decision).toMatchObject({ kind: 'rejected', code });
});

test('two keys of a tenant never have the same secret, the studio key included', () => {
  const save = (keyId: string, hash: string) => decideSaveKey(opened(), { keyId, role: 'application', hash });
  expect(save('other', sha('a'))).toMatchObject({ kind: 'rejected', code: 'conflict' });
  expect(save('other', sha('b'))).toMatchObject({ kind: 'rejected', code: 'conflict' });
  expect(save('other', sha('d'))).toMatchObject({ kind: 'accepted', reply: { rotated: false } });
  expect(save('application', sha('a'))).toMatchObject({ kind: 'unchanged' });
  expect(save('application', sha('d'))).toMatchObject({ kind: 'accepted', reply: { rotated: true } });
});
