import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import { decideCreateTenant, decideDeleteIssuer, decideDeleteKey, decideSaveIssuer, decideSaveKey } from './decide.ts';
import { tenantEventSchemas } from './events.ts';
import type { Issuer, TenantEvent } from './events.ts';
import { ISSUERS_MAX, KEYS_MAX } from './limits.ts';
import { evolveTenant, initialTenant } from './state.ts';
import type { KnownTenant, TenantState } from './state.ts';

const AT = '2026-01-01T00:00:00.000Z';
const hashOf = (n: number): string => n.toString(16).padStart(64, '0');

const issuer = (iss: string): Issuer => ({
  issuer: iss,
  audience: 'host',
  jwks: { keys: [] },
  subjectClaim: 'sub',
  scopesClaim: 'scope',
  allowedScopes: [],
  maxLifetimeSeconds: 3_600,
});

function known(state: TenantState): KnownTenant {
  if (state.status === 'absent') throw new Error('there is no tenant');
  return state;
}

/** The state after a decision; the same when it was refused. What is recorded has to be what the log may hold. */
function after(state: TenantState, decision: Decision<TenantEvent, unknown>, at = AT): KnownTenant {
  if (decision.kind !== 'accepted') return known(state);
  return known(
    decision.events.reduce((folded, event, index) => {
      const stored: unknown = JSON.parse(JSON.stringify(event.data));
      expect(tenantEventSchemas[event.type].parse(stored)).toEqual(stored);
      return evolveTenant(folded, event, { at, position: 1, index });
    }, state),
  );
}

function opened(): KnownTenant {
  const hashes = { credentialHash: hashOf(1), studioCredentialHash: hashOf(2), bodyHash: hashOf(3) };
  const command = { tenantId: 'tn_1', name: 'Acme', principalId: 'app', idempotencyKey: null, ...hashes };
  return after(initialTenant, decideCreateTenant(initialTenant, command));
}

const save = (state: TenantState, keyId: string, n: number, role: 'application' | 'management' = 'application') =>
  decideSaveKey(state, { keyId, role, hash: hashOf(n) });

test('a key keeps its age over rotations, and nothing else of what it was', () => {
  const first = after(opened(), save(opened(), 'k', 10), '2026-01-02T00:00:00.000Z');
  const second = after(first, save(first, 'k', 11, 'management'), '2026-01-03T00:00:00.000Z');
  expect(second.keys.filter(({ id }) => id === 'k')).toEqual([
    { id: 'k', role: 'management', hash: hashOf(11), createdAt: '2026-01-02T00:00:00.000Z' },
  ]);
  expect(second.updatedAt).toBe('2026-01-03T00:00:00.000Z');
  expect(save(second, 'k', 11, 'management')).toEqual({ kind: 'unchanged', reply: { rotated: false } });
  expect(save(second, 'k', 11)).toMatchObject({ kind: 'accepted', reply: { rotated: true } });
});

test('the last application key can be rotated, but neither deleted nor given another role', () => {
  const state = opened();
  expect(decideDeleteKey(state, 'app')).toMatchObject({ kind: 'rejected', code: 'conflict' });
  expect(save(state, 'app', 1, 'management')).toMatchObject({ kind: 'rejected', code: 'conflict' });
  expect(save(state, 'app', 10)).toMatchObject({ kind: 'accepted', reply: { rotated: true } });
  const two = after(state, save(state, 'second', 10));
  expect(decideDeleteKey(two, 'app')).toMatchObject({ kind: 'accepted' });
});

test('the studio key is none that can be deleted', () => {
  expect(decideDeleteKey(opened(), 'studio')).toMatchObject({ kind: 'rejected', code: 'not_found' });
  expect(decideDeleteKey(opened(), 'none')).toEqual(decideDeleteKey(opened(), 'studio'));
});

test('an issuer is registered under one name', () => {
  const state = after(opened(), decideSaveIssuer(opened(), 'a', issuer('https://a')));
  expect(decideSaveIssuer(state, 'b', issuer('https://a'))).toMatchObject({ kind: 'rejected', code: 'conflict' });
  expect(decideSaveIssuer(state, 'a', issuer('https://b'))).toMatchObject({ kind: 'accepted' });
});

test.each(['constructor', 'toString', 'valueOf'])('%s is a name like any other', (name) => {
  const state = opened();
  expect(decideDeleteIssuer(state, name)).toMatchObject({ kind: 'rejected', code: 'not_found' });
  const saved = after(state, decideSaveIssuer(state, name, issuer('https://a')));
  expect(Object.keys(saved.issuers)).toEqual([name]);
  expect(after(saved, decideDeleteIssuer(saved, name)).issuers).toEqual({});
});

test('nothing can be changed of a tenant that is not there', () => {
  for (const decision of [
    save(initialTenant, 'k', 1),
    decideDeleteKey(initialTenant, 'k'),
    decideSaveIssuer(initialTenant, 'a', issuer('https://a')),
    decideDeleteIssuer(initialTenant, 'a'),
  ]) {
    expect(decision).toMatchObject({ kind: 'rejected', code: 'not_found' });
  }
});

test('whatever is asked in whatever order, someone can use the tenant, and nothing grows past its limit', () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  process.stdout.write(`keys and issuers: SEED=${seed}\n`);
  let random = seed;
  const below = (max: number): number => {
    random = (Math.imul(random, 1_103_515_245) + 12_345) & 0x7fffffff;
    return Math.floor((random / 0x80000000) * max);
  };
  let state = opened();
  for (let step = 0; step < 3_000; step += 1) {
    const [id, role] = [`k${below(300)}`, below(2) === 0 ? ('application' as const) : ('management' as const)];
    const name = `i${below(40)}`;
    const decisions = [
      () => save(state, id, 100 + below(1_000), role),
      () => save(state, 'app', 100 + below(1_000), role),
      () => decideDeleteKey(state, below(10) === 0 ? 'app' : id),
      () => decideSaveIssuer(state, name, issuer(`https://${below(60)}`)),
      () => decideDeleteIssuer(state, name),
    ];
    const decision = decisions[below(decisions.length)]?.();
    if (decision === undefined) continue;
    state = after(state, decision);
    expect(state.keys.filter((key) => key.role === 'application').length, `seed ${seed}, step ${step}`).toBeGreaterThan(
      0,
    );
    expect(state.keys.filter((key) => key.id === 'studio').map(({ hash }) => hash)).toEqual([hashOf(2)]);
    expect(state.keys.length).toBeLessThanOrEqual(KEYS_MAX);
    expect(new Set(state.keys.map((key) => key.id)).size).toBe(state.keys.length);
    const issuers = Object.values(state.issuers).map((one) => one.issuer);
    expect(issuers.length).toBeLessThanOrEqual(ISSUERS_MAX);
    expect(new Set(issuers).size).toBe(issuers.length);
  }
  expect(Object.keys(state.issuers).length).toBeGreaterThan(5);
});
