import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import {
  decideDeleteModelCredential,
  decideSaveModel,
  decideSaveModelCredential,
  decideSeed,
  decideSelectModel,
} from './decide-model.ts';
import type { SaveModel } from './decide-model.ts';
import { decideCreateTenant } from './decide.ts';
import { tenantEventSchemas } from './events.ts';
import type { TenantEvent } from './events.ts';
import { evolveTenant, initialTenant } from './state.ts';
import type { KnownTenant, TenantState } from './state.ts';

const AT = '2026-01-01T00:00:00.000Z';
const LATER = '2026-01-02T00:00:00.000Z';
const hash = 'a'.repeat(64);
const OWN = 'https://models.example/v1';

function after<R>(state: TenantState, decision: Decision<TenantEvent, R>, at = AT): KnownTenant {
  if (decision.kind !== 'accepted') throw new Error(`it was ${JSON.stringify(decision)}`);
  const folded = decision.events.reduce((before, event, index) => {
    const stored: unknown = JSON.parse(JSON.stringify(event.data));
    expect(tenantEventSchemas[event.type].parse(stored)).toEqual(stored);
    return evolveTenant(before, event, { at, position: 1, index });
  }, state);
  if (folded.status === 'absent') throw new Error('there is no tenant');
  return folded;
}

function opened(): KnownTenant {
  const hashes = { credentialHash: hash, studioCredentialHash: 'b'.repeat(64), bodyHash: hash };
  const command = { tenantId: 'tn_1', name: 'Acme', principalId: 'app', idempotencyKey: null, ...hashes };
  return after(initialTenant, decideCreateTenant(initialTenant, command));
}

const wanted = (more: Partial<SaveModel> = {}): SaveModel => ({
  provider: 'openai-compatible',
  model: 'llama',
  baseUrl: OWN,
  secretId: null,
  ...more,
});

test('a model is saved with the address and the credential of its provider, the key’s id only', () => {
  const settings = { temperature: 0.5 };
  const decision = decideSaveModel(opened(), wanted({ settings, secretId: 'cr_1' }));
  expect(decision).toMatchObject({ reply: { superseded: [] } });
  const state = after(opened(), decision, LATER);
  expect(state.model).toEqual({ provider: 'openai-compatible', model: 'llama', settings });
  const credential = { secretId: 'cr_1', savedAt: LATER };
  expect(state.providers).toEqual({ 'openai-compatible': { baseUrl: OWN, credential } });
  expect(state.updatedAt).toBe(LATER);
});

test('the same again is not a change, and less takes away what it leaves out', () => {
  const state = after(opened(), decideSaveModel(opened(), wanted({ settings: { maxOutputTokens: 5 } })));
  expect(decideSaveModel(state, wanted({ settings: { maxOutputTokens: 5 } }))).toMatchObject({ kind: 'unchanged' });
  expect(decideSaveModel(state, wanted({ settings: { maxOutputTokens: 6 } }))).toMatchObject({ kind: 'accepted' });
  expect(after(state, decideSaveModel(state, wanted())).model).toEqual({
    provider: 'openai-compatible',
    model: 'llama',
  });
});

test('a stored credential is never sent to an address that it was not given for', () => {
  const state = after(opened(), decideSaveModel(opened(), wanted({ secretId: 'cr_1' })));
  for (const baseUrl of ['https://elsewhere.example/v1', null]) {
    expect(decideSaveModel(state, wanted({ baseUrl }))).toMatchObject({ kind: 'rejected', code: 'conflict' });
    const moved = decideSaveModel(state, wanted({ baseUrl, secretId: 'cr_2' }));
    expect(moved).toMatchObject({ kind: 'accepted', reply: { superseded: ['cr_1'] } });
    expect(after(state, moved).providers['openai-compatible']).toMatchObject({
      ...{ baseUrl, credential: { secretId: 'cr_2' } },
    });
  }
  const without = after(state, decideDeleteModelCredential(state, 'openai-compatible'));
  expect(decideSaveModel(without, wanted({ baseUrl: 'https://elsewhere.example/v1' }))).toMatchObject({
    kind: 'accepted',
  });
});

test.each([{ showReasoning: true }, { caching: 'off' }, { temperature: 0 }, { reasoningEffort: 'high' }] as const)(
  'another setting is another selection: %o',
  (settings) => {
    const state = after(opened(), decideSaveModel(opened(), wanted({ secretId: 'cr_1' })));
    const changed = decideSaveModel(state, wanted({ settings, secretId: 'cr_1' }));
    expect(after(state, changed).model?.settings).toEqual(settings);
    expect(decideSaveModel(after(state, changed), wanted({ settings }))).toMatchObject({
      kind: 'unchanged',
    });
  },
);

test('a selection changes the model and nothing else', () => {
  const settings = { reasoningEffort: 'low' };
  const state = after(opened(), decideSaveModel(opened(), wanted({ settings, secretId: 'cr_1' })));
  const selected = after(state, decideSelectModel(state, { provider: 'anthropic', model: 'claude' }));
  expect(selected.model).toEqual({ provider: 'anthropic', model: 'claude', settings });
  expect(selected.providers).toEqual(state.providers);
  expect(decideSelectModel(selected, { provider: 'anthropic', model: 'claude' })).toMatchObject({ kind: 'unchanged' });
  const back = decideSelectModel(selected, { provider: 'openai-compatible', model: 'other' });
  expect(after(selected, back).model).toMatchObject({ model: 'other' });
  expect(decideSelectModel(opened(), { provider: 'openai-compatible', model: 'm' })).toMatchObject({
    ...{ kind: 'rejected', code: 'conflict' },
  });
});

test('a credential is replaced by a new one, and names the one that is not needed any more', () => {
  const first = decideSaveModelCredential(opened(), { provider: 'openai', secretId: 'cr_1' });
  expect(first).toMatchObject({ reply: { superseded: [] }, events: [{ data: { rotated: false } }] });
  const state = after(opened(), first);
  const second = decideSaveModelCredential(state, { provider: 'openai', secretId: 'cr_2' });
  expect(second).toMatchObject({ reply: { superseded: ['cr_1'] }, events: [{ data: { rotated: true } }] });
  const rotated = after(state, second);
  const gone = decideDeleteModelCredential(rotated, 'openai');
  expect(gone).toMatchObject({ reply: { superseded: ['cr_2'] } });
  expect(after(rotated, gone).providers).toEqual({ openai: { baseUrl: null, credential: null } });
  for (const provider of ['openai', 'google'] as const) {
    expect(decideDeleteModelCredential(after(rotated, gone), provider)).toMatchObject({ code: 'not_found' });
  }
});

test('a seed writes what is absent, and keeps what is there', () => {
  const model = wanted({ secretId: 'cr_1' });
  const first = decideSeed(opened(), { fixtureModel: true, model });
  expect(first).toMatchObject({ reply: { applied: ['fixtureModel', 'model'], kept: [], superseded: [] } });
  const state = after(opened(), first);
  expect(state).toMatchObject({ fixtureModel: true, model: { model: 'llama' } });
  const again = decideSeed(state, { fixtureModel: true, model: wanted({ model: 'other', secretId: 'cr_2' }) });
  expect(again).toEqual({ kind: 'unchanged', reply: { applied: [], kept: ['fixtureModel', 'model'], superseded: [] } });
  const onlyFixture = decideSeed(opened(), { fixtureModel: true, model: null });
  expect(onlyFixture).toMatchObject({ reply: { applied: ['fixtureModel'], kept: [] } });
  expect(decideSeed(opened(), { fixtureModel: false, model: null })).toMatchObject({ kind: 'unchanged' });
});

test('nothing can be set of a tenant that is not there', () => {
  for (const decision of [
    decideSaveModel(initialTenant, wanted()),
    decideSelectModel(initialTenant, { provider: 'openai', model: 'm' }),
    decideSaveModelCredential(initialTenant, { provider: 'openai', secretId: 'cr_1' }),
    decideDeleteModelCredential(initialTenant, 'openai'),
    decideSeed(initialTenant, { fixtureModel: true, model: null }),
  ]) {
    expect(decision).toMatchObject({ kind: 'rejected', code: 'not_found' });
  }
});
