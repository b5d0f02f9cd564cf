import { describe, expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import { vaultEventSchemas } from './events.ts';
import type { VaultEvent } from './events.ts';
import * as decide from './decide.ts';
import { evolveVault, initialVault } from './state.ts';
import type { VaultState } from './state.ts';

const HASH = 'a'.repeat(64);
const OTHER = 'b'.repeat(64);
const AT = '2026-01-01T00:00:00.000Z';

function after(state: VaultState, decision: Decision<VaultEvent, unknown>): VaultState {
  if (decision.kind === 'rejected') throw new Error(decision.message);
  const events = decision.kind === 'accepted' ? decision.events : [];
  for (const { type, data } of events) expect(vaultEventSchemas[type].parse(data)).toEqual(data);
  return events.reduce((folded, event, index) => evolveVault(folded, event, { at: AT, position: 1, index }), state);
}

const vault = after(
  initialVault,
  decide.decideCreateVault(initialVault, { name: 'v', subject: 'ann', metadata: {}, bodyHash: HASH }),
);
const command = {
  ...({ actsFor: null, credentialId: 'cr_1', name: 'n', type: 'bearer', url: 'https://a.example' } as const),
  ...{ scopes: [], bodyHash: HASH, secretId: 'se_1', expiresAt: null, refresh: null },
};
const withOne = after(vault, decide.decideSaveCredential(vault, command));
const rotation = { ...command, secretId: 'se_2', keyHash: HASH, bodyHash: HASH };

function one(state: VaultState) {
  const reached = decide.reachCredential(state, null, 'cr_1');
  if ('kind' in reached) throw new Error(reached.message);
  return reached;
}

describe('a vault', () => {
  test('that was deleted leaves the names of its secrets, until they are gone', () => {
    const gone = after(withOne, decide.decideDeleteVault(withOne, 'ann'));
    expect(gone).toEqual({ status: 'deleted', subject: 'ann', left: [{ credentialId: 'cr_1', secretId: 'se_1' }] });
    const cleared = after(gone, decide.decideClearVault(gone, ['se_1']));
    expect(cleared).toMatchObject({ left: [] });
    expect(decide.decideClearVault(cleared, ['se_1']).kind).toBe('unchanged');
    const again = { name: 'v', subject: 'ann', metadata: {}, bodyHash: HASH };
    expect(decide.decideCreateVault(gone, again)).toMatchObject({ code: 'conflict' });
  });

  test('of another person is refused with the words for one that is not there', () => {
    const foreign = decide.decideDeleteVault(withOne, 'ben');
    expect(foreign).toEqual(decide.decideDeleteVault(initialVault, 'ben'));
    expect(decide.decideSaveCredential(withOne, { ...command, actsFor: 'ben' })).toEqual(foreign);
    expect(decide.decideDeleteCredential(withOne, { actsFor: 'ben', credentialId: 'cr_1' })).toEqual(foreign);
  });
});

describe('a credential', () => {
  test('saved again by the same request changes nothing, and what the repetition stored is to go', () => {
    const again = decide.decideSaveCredential(withOne, { ...command, secretId: 'se_9' });
    expect(again).toEqual({
      kind: 'unchanged',
      reply: { superseded: [{ credentialId: 'cr_1', secretId: 'se_9' }] },
    });
    const other = decide.decideSaveCredential(withOne, { ...command, bodyHash: OTHER });
    expect(other).toMatchObject({ code: 'idempotency_conflict' });
  });

  test('rotated has new tokens, the next generation, and names what is to go', () => {
    const decision = decide.decideRotateCredential(withOne, rotation);
    expect(decision).toMatchObject({ reply: { superseded: [{ credentialId: 'cr_1', secretId: 'se_1' }] } });
    const rotated = after(withOne, decision);
    expect(one(rotated)).toMatchObject({ generation: 2, secretId: 'se_2', state: 'ready', rotatedAt: AT });
    expect(decide.decideRotateCredential(rotated, { ...rotation, secretId: 'se_3' })).toMatchObject({
      kind: 'unchanged',
      reply: { superseded: [{ secretId: 'se_3' }] },
    });
    const reused = { ...rotation, bodyHash: OTHER };
    expect(decide.decideRotateCredential(rotated, reused)).toMatchObject({ code: 'idempotency_conflict' });
    const elsewhere = { ...rotation, keyHash: OTHER, url: 'https://b.example' };
    expect(decide.decideRotateCredential(rotated, elsewhere)).toMatchObject({ code: 'conflict' });
  });

  test('that was deleted is not made again by the request that made it', () => {
    const gone = after(withOne, decide.decideDeleteCredential(withOne, { actsFor: null, credentialId: 'cr_1' }));
    expect(decide.decideSaveCredential(gone, command)).toMatchObject({ code: 'conflict' });
    expect(decide.reachCredential(gone, null, 'cr_1')).toMatchObject({ code: 'not_found' });
  });

  test('is one of so many, at a time and in all', () => {
    let state = vault;
    const next = (n: number) => ({ ...command, credentialId: `cr_${n}`, secretId: `se_${n}` });
    for (let n = 0; n < decide.CREDENTIALS_MAX; n++) state = after(state, decide.decideSaveCredential(state, next(n)));
    expect(decide.decideSaveCredential(state, next(9_999))).toMatchObject({ code: 'limit_exceeded' });
    for (let n = decide.CREDENTIALS_MAX; n < decide.CREDENTIALS_EVER_MAX; n++) {
      const old = { actsFor: null, credentialId: `cr_${n - decide.CREDENTIALS_MAX}` };
      state = after(state, decide.decideDeleteCredential(state, old));
      state = after(state, decide.decideSaveCredential(state, next(n)));
    }
    state = after(state, decide.decideDeleteCredential(state, { actsFor: null, credentialId: 'cr_999' }));
    expect(decide.decideSaveCredential(state, next(9_999))).toMatchObject({ code: 'limit_exceeded' });
  });

  test('used is on record with the tokens that were used, and those alone', () => {
    const use = {
      ...({ credentialId: 'cr_1', generation: 1, purpose: 'mcp', sessionId: 's', turnId: 'tu_1' } as const),
      url: 'https://a.example/mcp',
    };
    expect(decide.decideUseCredential(withOne, use)).toMatchObject({ kind: 'accepted', reply: { secretId: 'se_1' } });
    expect(decide.decideUseCredential(withOne, { ...use, generation: 2 })).toEqual({ kind: 'unchanged', reply: null });
  });

  test('a name that every object has is not a credential', () => {
    expect(decide.reachCredential(withOne, null, 'constructor')).toMatchObject({ code: 'not_found' });
  });
});
