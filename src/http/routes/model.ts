import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import {
  deleteModelCredential,
  saveModel,
  saveModelCredential,
  saveModelPrices,
  selectModel,
} from '../../commands/tenant/manage-model.ts';
import type { ManageModelDeps, ModelInput } from '../../commands/tenant/manage-model.ts';
import { readTenant } from '../../commands/tenant/manage-tenant.ts';
import { withoutNulls } from '../../domain/kernel/optional.ts';
import type { ModelProvider } from '../../domain/tenant/events.ts';
import type { KnownTenant } from '../../domain/tenant/state.ts';
import type { EgressPolicy } from '../../lib/egress.ts';
import { requireCallable } from '../callable.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { accepted, notFound, ProblemError } from '../problem.ts';
import { manageInput } from '../tenant-input.ts';
import * as wire from '../wire/model.ts';

const docs = operations('Models', {
  getModel: ['The model of turns that name none of their own'],
  saveModel: [
    'Select a model, with the address and the credential of its provider',
    'Replaces the selection. A credential that was stored for another baseUrl has to be sent again with the new one.',
  ],
  selectModel: ['Select another model; addresses, credentials and settings stay'],
  listModelPrices: ['What the tenant pays for models'],
  saveModelPrices: [
    'Set what the tenant pays for models',
    'Replaces the list. They count before the prices of the catalogue, from the next call on; US dollars per million tokens.',
  ],
  listModels: ['Providers, and the models whose prices are known'],
  getModelCredential: ['Whether a credential is stored; never the key'],
  saveModelCredential: [
    'Store or replace the key for a provider',
    'The next model call uses it: at once on this node and within a second on every other.',
  ],
  deleteModelCredential: ['Remove the key for a provider'],
});

export interface CatalogModel {
  readonly id: string;
  readonly name: string;
  readonly contextWindow?: number;
  readonly inputUsdPerMillion?: number;
  readonly outputUsdPerMillion?: number;
}

export interface ModelRouteDeps extends ManageModelDeps {
  readonly freshness: Freshness;
  /** Whether this Host has the fixture model on. */
  readonly fixtureModel: boolean;
  /** Models of a provider as the price catalogue has them. */
  readonly catalog: (provider: string) => Promise<readonly CatalogModel[]>;
  /** Which addresses this Host calls. */
  readonly egress: EgressPolicy;
}

const NAMES: Readonly<Record<ModelProvider, string>> = {
  anthropic: 'Anthropic',
  openai: 'OpenAI',
  google: 'Google Gemini',
  'openai-compatible': 'A server with the chat API of OpenAI',
  fixture: 'Fixture',
};
const REMOTE = ['anthropic', 'openai', 'google', 'openai-compatible'] as const;

/** Which model the tenant's turns use, and the credentials for it. */
export function modelRoutes(deps: ModelRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    app.get(
      '/v1/tenant/model',
      { config, schema: { ...docs.getModel, response: { 200: wire.tenantModel } } },
      async (request) => toModelResponse(await tenantOf(deps, callerOf(request).tenantId), deps.fixtureModel),
    );
    app.put(
      '/v1/tenant/model',
      { config, schema: { ...docs.saveModel, body: wire.saveModelBody, response: { 200: wire.tenantModel } } },
      async (request) => {
        requireFixture(deps, request.body.provider, 'provider');
        requireCallable(deps.egress, request.body.baseUrl, 'baseUrl');
        const input = { ...manageInput(request, request.body.requestId), ...modelInput(request.body) };
        const { tenant, position } = accepted(await saveModel(deps, input));
        await fresh(deps, tenant, position);
        return toModelResponse(tenant, deps.fixtureModel);
      },
    );
    app.put(
      '/v1/tenant/model/selection',
      { config, schema: { ...docs.selectModel, body: wire.selectModelBody, response: { 200: wire.tenantModel } } },
      async (request) => {
        const { requestId, provider, model } = request.body;
        requireFixture(deps, provider, 'provider');
        const input = { ...manageInput(request, requestId), provider, model };
        const { tenant, position } = accepted(await selectModel(deps, input));
        await fresh(deps, tenant, position);
        return toModelResponse(tenant, deps.fixtureModel);
      },
    );
    app.get(
      '/v1/tenant/model/catalog',
      { config, schema: { ...docs.listModels, response: { 200: wire.modelCatalog } } },
      async (request) => await catalogOf(deps, await tenantOf(deps, callerOf(request).tenantId)),
    );
    await app.register(priceRoutes(deps));
    await app.register(credentialRoutes(deps));
  };
}

function priceRoutes(deps: ModelRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    const url = '/v1/tenant/model/prices';
    app.get(
      url,
      { config, schema: { ...docs.listModelPrices, response: { 200: wire.modelPrices } } },
      async (request) => {
        const { prices } = await tenantOf(deps, callerOf(request).tenantId);
        return { prices: [...prices] };
      },
    );
    app.put(
      url,
      { config, schema: { ...docs.saveModelPrices, body: wire.savePricesBody, response: { 200: wire.modelPrices } } },
      async (request) => {
        const { requestId, prices } = request.body;
        const { tenant, position } = accepted(
          await saveModelPrices(deps, { ...manageInput(request, requestId), prices }),
        );
        await fresh(deps, tenant, position);
        return { prices: [...tenant.prices] };
      },
    );
    await Promise.resolve();
  };
}

function credentialRoutes(deps: ModelRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.tenant } };
    const url = '/v1/tenant/model/credentials/:provider';
    const params = wire.credentialPath;
    app.get(
      url,
      { config, schema: { ...docs.getModelCredential, params, response: { 200: wire.modelCredential } } },
      async (request) =>
        toCredentialResponse(await tenantOf(deps, callerOf(request).tenantId), request.params.provider),
    );
    app.put(
      url,
      {
        config,
        schema: {
          ...docs.saveModelCredential,
          params,
          body: wire.saveCredentialBody,
          response: { 200: wire.credentialSaved },
        },
      },
      async (request) => {
        const { provider } = request.params;
        const { requestId, apiKey } = request.body;
        const input = { ...manageInput(request, requestId), provider, apiKey };
        const { reply, tenant, position } = accepted(await saveModelCredential(deps, input));
        await fresh(deps, tenant, position);
        return { ...toCredentialResponse(tenant, provider), rotated: reply.superseded.length > 0 };
      },
    );
    app.delete(
      url,
      { config, schema: { ...docs.deleteModelCredential, params, response: { 200: wire.credentialDeleted } } },
      async (request) => {
        const { provider } = request.params;
        const input = { ...manageInput(request, undefined), provider };
        const { tenant, position } = accepted(await deleteModelCredential(deps, input));
        await fresh(deps, tenant, position);
        return { provider, deleted: true as const };
      },
    );
    await Promise.resolve();
  };
}

/** What a body says about a model, as use cases take it. */
export function modelInput({ provider, model, settings, baseUrl, credential }: wire.ModelSeed): ModelInput {
  const sent = Object.entries(settings ?? {}).filter(([, value]) => value !== undefined);
  const kept = settings === undefined ? {} : { settings: Object.fromEntries(sent) };
  return { selection: { provider, model, ...kept, baseUrl: baseUrl ?? null }, apiKey: credential?.apiKey ?? null };
}

/** The model of turns that name none, as it is in force on this Host. */
export function toModelResponse({ model, providers, fixtureModel }: KnownTenant, fixtureIsOn: boolean) {
  if (model === null) {
    return fixtureModel && fixtureIsOn
      ? { configured: true, provider: 'fixture' as const, model: 'fixture' }
      : { configured: false };
  }
  const baseUrl = providers[model.provider]?.baseUrl ?? null;
  const configured = model.provider !== 'fixture' || fixtureIsOn;
  return { configured, ...model, ...withoutNulls({ baseUrl }) };
}

/** @throws ProblemError when the fixture model is requested of a Host without it */
export function requireFixture(
  { fixtureModel }: Pick<ModelRouteDeps, 'fixtureModel'>,
  provider: string,
  path: string,
): void {
  if (provider !== 'fixture' || fixtureModel) return;
  const issues = [{ path, message: 'the optional feature tenant-fixture-model is off' }];
  const message = 'This Host does not have the fixture model on; GET /health lists its features.';
  throw new ProblemError({ code: 'invalid_request', message, details: { issues } });
}

function toCredentialResponse<P extends ModelProvider>({ providers }: KnownTenant, provider: P) {
  const credential = providers[provider]?.credential ?? null;
  return credential === null
    ? { provider, configured: false }
    : { provider, configured: true, savedAt: credential.savedAt };
}

async function catalogOf({ catalog, fixtureModel }: ModelRouteDeps, { providers }: KnownTenant) {
  const remote = REMOTE.map(async (id) => {
    const known = providers[id];
    // A tenant's own server may need no credential.
    const configured = id === 'openai-compatible' ? Boolean(known?.baseUrl) : Boolean(known?.credential);
    return { id, name: NAMES[id], configured, models: [...(await catalog(id))] };
  });
  const models = [{ id: 'fixture', name: 'Plays the script in the message' }];
  const fixture = { id: 'fixture' as const, name: NAMES.fixture, configured: true, models };
  return { providers: [...(await Promise.all(remote)), ...(fixtureModel ? [fixture] : [])] };
}

async function tenantOf(deps: ModelRouteDeps, tenantId: string): Promise<KnownTenant> {
  const tenant = await readTenant(deps, tenantId);
  if (tenant === null) throw notFound('tenant');
  return tenant;
}

async function fresh(deps: ModelRouteDeps, { id }: KnownTenant, position: number | null): Promise<void> {
  await deps.freshness('tenants', { tenant: id, kind: 'tenant', id }, position);
}
