import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/model.ts';
import { seeded, tenantStatus } from '#src/http/wire/schemas.ts';
import type { Answer, TenantClient } from '../../support/client.ts';
import { newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const OWN = { provider: 'openai-compatible', model: 'llama', baseUrl: 'https://models.example/v1' };
const CREDENTIALS = '/v1/tenant/model/credentials';

/** Which model a tenant's turns use, and its credentials. */
export function modelSuite(target: () => HttpTarget): void {
  const put = async (tenant: TenantClient, path: string, body: unknown): Promise<Answer> =>
    await tenant.request({ method: 'PUT', path, body });
  const save = async (tenant: TenantClient, body: unknown) =>
    shaped(await put(tenant, '/v1/tenant/model', body), 200, wire.tenantModel);
  const shown = async (tenant: TenantClient) =>
    shaped(await tenant.request({ path: '/v1/tenant/model' }), 200, wire.tenantModel);
  const credential = async (tenant: TenantClient, provider: string) =>
    shaped(await tenant.request({ path: `${CREDENTIALS}/${provider}` }), 200, wire.modelCredential);
  const catalog = async (tenant: TenantClient) =>
    shaped(await tenant.request({ path: '/v1/tenant/model/catalog' }), 200, wire.modelCatalog).providers;

  describe('the model of a tenant', () => {
    test('is not configured, then what was saved, on every node', async () => {
      const tenant = await newTenant(target());
      expect(await shown(tenant)).toEqual({ configured: false });
      const settings = { temperature: 0.5, maxOutputTokens: 100, reasoningEffort: 'low' };
      expect(await save(tenant, { ...OWN, settings, requestId: 'r' })).toEqual({ configured: true, ...OWN, settings });
      const other = tenant.at(target().nodes[1]);
      expect(await shown(other)).toEqual({ configured: true, ...OWN, settings });
      const status = shaped(await other.request({ path: '/v1/tenant' }), 200, tenantStatus);
      expect(status.model).toEqual({ configured: true, ...OWN, settings });
      expect(await save(tenant, { provider: 'openai', model: 'gpt-5' })).toEqual({
        ...{ configured: true, provider: 'openai', model: 'gpt-5' },
      });
    });

    test('a selection keeps address and settings', async () => {
      const tenant = await newTenant(target());
      await save(tenant, { ...OWN, settings: { temperature: 0 } });
      const path = '/v1/tenant/model/selection';
      const google = shaped(await put(tenant, path, { provider: 'google', model: 'g' }), 200, wire.tenantModel);
      expect(google).toEqual({ configured: true, provider: 'google', model: 'g', settings: { temperature: 0 } });
      const back = { provider: 'openai-compatible', model: 'other' };
      expect(shaped(await put(tenant, path, back), 200, wire.tenantModel)).toMatchObject({ ...OWN, model: 'other' });
      const fresh = await newTenant(target());
      expect(refused(await put(fresh, path, back), 409, 'conflict').message).toContain('PUT /v1/tenant/model');
    });

    test('its own prices replace each other as a list, on every node', async () => {
      const tenant = await newTenant(target());
      const path = '/v1/tenant/model/prices';
      const known = async () =>
        shaped(await tenant.at(target().nodes[1]).request({ path }), 200, wire.modelPrices).prices;
      expect(await known()).toEqual([]);
      const one = { provider: 'openai-compatible', model: 'llama', inputUsdPerMillion: 0.2, outputUsdPerMillion: 0 };
      const more = { cacheReadUsdPerMillion: 1, cacheWriteUsdPerMillion: 2, contextWindow: 8_192 };
      const two = { provider: 'anthropic', model: 'claude', inputUsdPerMillion: 3, outputUsdPerMillion: 15, ...more };
      for (const prices of [[one], [two, one], [two, one], []]) {
        const body = { requestId: 'r', prices };
        expect(shaped(await put(tenant, path, body), 200, wire.modelPrices)).toEqual({ prices });
        expect(await known()).toEqual(prices);
      }
      expect((await shown(tenant)).configured).toBe(false);
    });

    test('credentials come in, and only that they are there comes out', async () => {
      const tenant = await newTenant(target());
      expect(await credential(tenant, 'anthropic')).toEqual({ provider: 'anthropic', configured: false });
      const path = `${CREDENTIALS}/anthropic`;
      const first = shaped(await put(tenant, path, { apiKey: 'first-key' }), 200, wire.credentialSaved);
      expect(first).toMatchObject({ provider: 'anthropic', configured: true, rotated: false });
      const second = shaped(await put(tenant, path, { apiKey: 'second-key' }), 200, wire.credentialSaved);
      expect(second.rotated).toBe(true);
      const { rotated: _rotated, ...known } = second;
      expect(await credential(tenant.at(target().nodes[1]), 'anthropic')).toEqual(known);
      expect(JSON.stringify([first, second])).not.toContain('-key');
      const gone = shaped(await tenant.request({ method: 'DELETE', path }), 200, wire.credentialDeleted);
      expect(gone).toEqual({ provider: 'anthropic', deleted: true });
      expect(await credential(tenant, 'anthropic')).toEqual({ provider: 'anthropic', configured: false });
      refused(await tenant.request({ method: 'DELETE', path }), 404, 'not_found');
    });

    test('a stored credential is not moved to another address without being sent again', async () => {
      const tenant = await newTenant(target());
      await save(tenant, { ...OWN, credential: { apiKey: 'own-key' } });
      const moved = { ...OWN, baseUrl: 'https://elsewhere.example/v1' };
      refused(await put(tenant, '/v1/tenant/model', moved), 409, 'conflict');
      expect(await shown(tenant)).toMatchObject(OWN);
      expect(await save(tenant, { ...moved, credential: { apiKey: 'other-key' } })).toMatchObject(moved);
    });

    test('the catalogue has providers, models and prices, and what is configured', async () => {
      const tenant = await newTenant(target());
      await put(tenant, `${CREDENTIALS}/google`, { apiKey: 'k' });
      const providers = await catalog(tenant);
      expect(providers.map(({ id, configured }) => [id, configured])).toEqual([
        ['anthropic', false],
        ['openai', false],
        ['google', true],
        ['openai-compatible', false],
        ['fixture', true],
      ]);
      for (const { id, models } of providers.slice(0, 3)) {
        expect(models.length, id).toBeGreaterThan(5);
        const priced = models.filter(({ inputUsdPerMillion = 0, outputUsdPerMillion = 0 }) => {
          return outputUsdPerMillion > inputUsdPerMillion && inputUsdPerMillion > 0;
        });
        expect(priced.length / models.length, id).toBeGreaterThan(0.7);
        expect(models.filter(({ contextWindow = 0 }) => contextWindow > 8_000).length, id).toBeGreaterThan(5);
      }
      await save(tenant, OWN);
      expect((await catalog(tenant)).find(({ id }) => id === 'openai-compatible')).toMatchObject({ configured: true });
    });

    test('a seed writes it only when there is none', async () => {
      const tenant = await newTenant(target());
      const seed = async (body: object) =>
        shaped(await put(tenant, '/v1/tenant/config/seed', { requestId: 'r', ...body }), 200, seeded);
      const model = { ...OWN, credential: { apiKey: 'seed-key' } };
      expect(await seed({ model })).toEqual({ applied: ['model'], kept: [] });
      const before = await credential(tenant, 'openai-compatible');
      expect(await seed({ model: { ...model, model: 'other' } })).toEqual({ applied: [], kept: ['model'] });
      expect(await shown(tenant)).toEqual({ configured: true, ...OWN });
      expect(await credential(tenant, 'openai-compatible')).toEqual(before);
      expect(await seed({ model, fixtureModel: true })).toEqual({ applied: ['fixtureModel'], kept: ['model'] });
    });

    test('every change is in the audit trail, and no key', async () => {
      const tenant = await newTenant(target());
      await save(tenant, { ...OWN, credential: { apiKey: 'audited-key' } });
      await put(tenant, '/v1/tenant/model/selection', { provider: 'fixture', model: 'f' });
      await tenant.request({ method: 'DELETE', path: `${CREDENTIALS}/openai-compatible` });
      const made = await put(tenant, '/v1/tenant/keys/ops', { role: 'management' });
      const ops = { authorization: `Bearer ${String(Reflect.get(Object(made.json), 'key'))}` };
      const { text } = await tenant.request({ path: '/v1/tenant/audit', headers: ops });
      for (const action of ['model.saved', 'model.selected', 'model-credential.saved', 'model-credential.deleted']) {
        expect(text).toContain(`"action":"${action}"`);
      }
      expect(text).toContain(OWN.baseUrl);
      expect(text).not.toContain('audited-key');
      expect(text).not.toContain('cr_');
    });

    test('of 10 rotations at the same time on two nodes one is in force at the end', async () => {
      const tenant = await newTenant(target());
      const answers = await Promise.all(
        Array.from({ length: 10 }, async (_, i) => {
          const at = tenant.at(target().nodes[i % 2 === 0 ? 0 : 1]);
          return shaped(await put(at, `${CREDENTIALS}/openai`, { apiKey: `key-${i}` }), 200, wire.credentialSaved);
        }),
      );
      expect(answers.filter(({ rotated }) => !rotated)).toHaveLength(1);
      expect(await credential(tenant, 'openai')).toMatchObject({ configured: true });
    });
  });
}
