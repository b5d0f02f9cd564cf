import { describe, expect, test } from 'vitest';
import { ACCESS, authorize } from './authorize.ts';
import { CALLER_KINDS, outOfReach, SCOPES } from './caller.ts';
import type { Caller, CallerKind, Scope } from './caller.ts';

const caller = (kind: CallerKind, change: Partial<Caller> = {}): Caller => ({
  ...{ kind, tenantId: 'tn_a', principalId: 'app', subject: null, scopes: [], agents: null, sandboxes: null },
  ...{ credential: 'c', expiresAt: null },
  ...change,
});

/** Everything that a table can say, written out: who alone may use it, and which single scope lets a subject in. */
const MATRIX: Readonly<Record<keyof typeof ACCESS, { kinds: readonly CallerKind[]; scopes: readonly Scope[] }>> = {
  admin: { kinds: ['admin'], scopes: [] },
  me: { kinds: ['application', 'studio', 'management', 'issuer'], scopes: SCOPES },
  readAgents: {
    kinds: ['application', 'studio', 'management', 'issuer'],
    scopes: ['agents:read', 'agents:write'],
  },
  writeAgents: { kinds: ['application', 'studio', 'management', 'issuer'], scopes: ['agents:write'] },
  sessions: { kinds: ['application', 'studio', 'issuer'], scopes: ['sessions:own'] },
  commands: { kinds: ['application', 'studio', 'management', 'issuer', 'executor'], scopes: ['sessions:own'] },
  interactions: { kinds: ['application', 'studio', 'management', 'issuer'], scopes: ['sessions:own'] },
  artifacts: { kinds: ['application', 'studio', 'issuer'], scopes: ['sessions:own'] },
  vaults: { kinds: ['application', 'studio', 'issuer'], scopes: ['vaults:own'] },
  readSandboxes: { kinds: ['application', 'studio', 'issuer'], scopes: ['sessions:own', 'sandboxes:write'] },
  writeSandboxes: { kinds: ['application', 'studio', 'issuer'], scopes: ['sandboxes:write'] },
  modelCalls: { kinds: ['application', 'studio', 'issuer'], scopes: [] },
  tenant: { kinds: ['application', 'studio', 'management', 'issuer'], scopes: [] },
  executors: { kinds: ['application', 'studio', 'management', 'issuer'], scopes: [] },
  executorWork: { kinds: ['executor'], scopes: [] },
};

const codeOf = (who: Caller, name: keyof typeof ACCESS) => authorize(who, ACCESS[name])?.code ?? 'allowed';

describe.each(Object.keys(ACCESS) as (keyof typeof ACCESS)[])('%s', (name) => {
  const { kinds, scopes } = MATRIX[name];

  test.each(CALLER_KINDS)('of a key without a subject: %s', (kind) => {
    expect(codeOf(caller(kind), name)).toBe(kinds.includes(kind) ? 'allowed' : 'key_role_mismatch');
  });

  test.each(CALLER_KINDS.flatMap((kind) => SCOPES.map((scope) => [kind, scope] as const)))(
    'of %s for a subject with %s alone',
    (kind, scope) => {
      const who = caller(kind, { subject: 'ada', scopes: [scope] });
      const expected = scopes.includes(scope) ? 'allowed' : 'scope_required';
      expect(codeOf(who, name)).toBe(kinds.includes(kind) ? expected : 'key_role_mismatch');
    },
  );

  test('of a subject without a scope', () => {
    const expected = name === 'me' ? 'allowed' : kinds.includes('application') ? 'scope_required' : 'key_role_mismatch';
    expect(codeOf(caller('application', { subject: 'ada' }), name)).toBe(expected);
  });

  test('of a subject with every scope', () => {
    const expected = scopes.length > 0 ? 'allowed' : 'scope_required';
    const who = caller('issuer', { subject: 'ada', scopes: SCOPES });
    expect(codeOf(who, name)).toBe(kinds.includes('issuer') ? expected : 'key_role_mismatch');
  });
});

test('a refusal for a scope names the scopes that would do', () => {
  const refusal = authorize(caller('application', { subject: 'ada' }), ACCESS.readAgents);
  expect(refusal?.details).toEqual({ scopes: ['agents:read', 'agents:write'] });
});

describe('a session', () => {
  const session = { subject: 'ada', agentId: 'agents/a' };

  test.each([
    ['the tenant itself', caller('application'), null],
    ['its subject', caller('application', { subject: 'ada' }), null],
    ['another subject', caller('application', { subject: 'bob' }), 'not_found'],
    ['its subject in other letters', caller('application', { subject: 'Ada' }), 'not_found'],
    ['a token that reaches its agent', caller('issuer', { subject: 'ada', agents: ['agents/a'] }), null],
    ['a token that reaches another agent', caller('issuer', { subject: 'ada', agents: ['agents/b'] }), 'not_granted'],
    ['a token that reaches no agent', caller('issuer', { subject: 'ada', agents: [] }), 'not_granted'],
    ['the executor of its agent', caller('executor', { agents: ['agents/a'] }), null],
    ['the executor of another agent', caller('executor', { agents: ['agents/b'] }), 'not_found'],
    ['a token of another subject', caller('issuer', { subject: 'bob', agents: [] }), 'not_found'],
  ])('is within the reach of %s, or not', (_, who, code) => {
    expect(outOfReach(who, session)?.code ?? null).toBe(code);
  });

  test('without an owner is not a subject’s', () => {
    expect(outOfReach(caller('application', { subject: 'ada' }), { ...session, subject: null })?.code).toBe(
      'not_found',
    );
  });
});
