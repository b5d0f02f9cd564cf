import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import { decideCreateTenant, decideSaveKey } from './decide.ts';
import { tenantEventSchemas } from './events.ts';
import type { TenantEvent } from './events.ts';
import { decideDeleteExecutor, decideSaveExecutors } from './executors.ts';
import { EXECUTORS_MAX } from './limits.ts';
import { evolveTenant, initialTenant } from './state.ts';
import type { KnownTenant, TenantState } from './state.ts';

const hashOf = (n: number): string => n.toString(16).padStart(64, '0');
const executor = (agentId: string, n: number, implementationVersion: string | null = null) => ({
  agentId,
  implementationVersion,
  hash: hashOf(n),
});

/** The state after a decision; the same when it was refused. What is recorded has to be what the log may hold. */
function after(state: TenantState, decision: Decision<TenantEvent, unknown>, at = '2026-01-01'): KnownTenant {
  let folded = state;
  for (const [index, event] of (decision.kind === 'accepted' ? decision.events : []).entries()) {
    const stored: unknown = JSON.parse(JSON.stringify(event.data));
    expect(tenantEventSchemas[event.type].parse(stored)).toEqual(stored);
    folded = evolveTenant(folded, event, { at, position: 1, index });
  }
  if (folded.status === 'absent') throw new Error('there is no tenant');
  return folded;
}

function opened(): KnownTenant {
  const hashes = { credentialHash: hashOf(1), studioCredentialHash: hashOf(2), bodyHash: hashOf(3) };
  const command = { tenantId: 'tn_1', name: 'Acme', principalId: 'app', idempotencyKey: null, ...hashes };
  return after(initialTenant, decideCreateTenant(initialTenant, command));
}

const withTwo = (): KnownTenant =>
  after(opened(), decideSaveExecutors(opened(), [executor('a', 10), executor('b', 11)]));

test('several are registered at once, in the order in which they were sent', () => {
  const decision = decideSaveExecutors(opened(), [executor('b', 11), executor('a', 10, 'v1')]);
  expect(decision).toMatchObject({
    kind: 'accepted',
    events: [
      { type: 'executor.saved', data: { ...executor('b', 11), rotated: false } },
      { type: 'executor.saved', data: { ...executor('a', 10, 'v1'), rotated: false } },
    ],
    reply: [
      { agentId: 'b', implementationVersion: null, rotated: false },
      { agentId: 'a', implementationVersion: 'v1', rotated: false },
    ],
  });
  expect(after(opened(), decision, '2026-01-02').executors).toEqual([
    { ...executor('b', 11), updatedAt: '2026-01-02' },
    { ...executor('a', 10, 'v1'), updatedAt: '2026-01-02' },
  ]);
});

test('only what differs is recorded, and only another token is a rotation', () => {
  const state = withTwo();
  expect(decideSaveExecutors(state, [executor('a', 10), executor('b', 11)])).toEqual({
    kind: 'unchanged',
    reply: ['a', 'b'].map((agentId) => ({ agentId, implementationVersion: null, rotated: false })),
  });
  const decision = decideSaveExecutors(state, [executor('a', 12), executor('b', 11, 'v2')]);
  expect(decision).toMatchObject({ reply: [{ rotated: true }, { rotated: false, implementationVersion: 'v2' }] });
  const next = after(state, decideSaveExecutors(state, [executor('b', 12)]), '2026-01-02');
  expect(next.executors).toEqual([
    { ...executor('a', 10), updatedAt: '2026-01-01' },
    { ...executor('b', 12), updatedAt: '2026-01-02' },
  ]);
});

test('an implementationVersion that is not sent again is gone', () => {
  const state = after(opened(), decideSaveExecutors(opened(), [executor('a', 10, 'v1')]));
  expect(after(state, decideSaveExecutors(state, [executor('a', 10)])).executors).toMatchObject([
    { implementationVersion: null },
  ]);
});

test.each([
  ['the first application key', [executor('c', 1)]],
  ['the studio key', [executor('c', 2)]],
  ['an executor that is there', [executor('c', 10)]],
  ['another one of the same request', [executor('c', 20), executor('d', 20)]],
])('one with the secret of %s is refused, and the others with it', (_, executors) => {
  const decision = decideSaveExecutors(withTwo(), [executor('e', 30), ...executors]);
  expect(decision).toMatchObject({ kind: 'rejected', code: 'conflict' });
});

test('two may change tokens in one request', () => {
  const swapped = after(withTwo(), decideSaveExecutors(withTwo(), [executor('a', 11), executor('b', 10)]));
  expect(swapped.executors.map(({ agentId, hash }) => [agentId, hash])).toEqual([
    ['a', hashOf(11)],
    ['b', hashOf(10)],
  ]);
});

test('no key gets the secret of an executor', () => {
  const decision = decideSaveKey(withTwo(), { keyId: 'k', role: 'application', hash: hashOf(10) });
  expect(decision).toMatchObject({ kind: 'rejected', code: 'conflict' });
});

test('a deleted one is gone, and its token free', () => {
  const state = after(withTwo(), decideDeleteExecutor(withTwo(), 'a'));
  expect(state.executors.map(({ agentId }) => agentId)).toEqual(['b']);
  expect(decideDeleteExecutor(state, 'a')).toMatchObject({ kind: 'rejected', code: 'not_found' });
  expect(decideSaveExecutors(state, [executor('c', 10)])).toMatchObject({ kind: 'accepted' });
});

test('a tenant that is not there has none', () => {
  expect(decideSaveExecutors(initialTenant, [executor('a', 10)])).toMatchObject({ code: 'not_found' });
  expect(decideDeleteExecutor(initialTenant, 'a')).toMatchObject({ code: 'not_found' });
});

test('there is a limit; those that are there can be rotated at it', () => {
  const many = Array.from({ length: EXECUTORS_MAX }, (_, n) => executor(`a${n}`, 100 + n));
  const full = after(opened(), decideSaveExecutors(opened(), many));
  expect(full.executors).toHaveLength(EXECUTORS_MAX);
  expect(decideSaveExecutors(full, [executor('a0', 99), executor('more', 98)])).toMatchObject({
    code: 'limit_exceeded',
    details: { limit: 'executors' },
  });
  expect(decideSaveExecutors(full, [executor('a0', 99)])).toMatchObject({ kind: 'accepted' });
});
