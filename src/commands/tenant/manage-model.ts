import type { Decision } from '../../domain/kernel/decision.ts';
import { needsOfModel } from '../../domain/agent/needs.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import {
  decideDeleteModelCredential,
  decideSaveModel,
  decideSaveModelCredential,
  decideSavePrices,
  decideSeed,
  decideSelectModel,
} from '../../domain/tenant/decide-model.ts';
import type { ModelSaved, SaveModel, Seeded } from '../../domain/tenant/decide-model.ts';
import type { ModelProvider, TenantEvent } from '../../domain/tenant/events.ts';
import type { TenantModelPrice } from '../../domain/tenant/model-prices.ts';
import type { TenantState } from '../../domain/tenant/state.ts';
import type { SecretStore } from '../../drivers/secrets/port.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import { requireKnown } from '../../lib/older-nodes.ts';
import { changeTenant } from './change-tenant.ts';
import type { Changed, ChangeTenantInput, ChangeTenantDeps } from './change-tenant.ts';

export interface ManageModelDeps extends ChangeTenantDeps {
  readonly secrets: SecretStore;
  /** Whether some node does not know it: it would refuse turns with such a selection, and forget the prices. */
  readonly isNew: (what: 'models' | 'prices') => boolean;
}

export interface ModelInput {
  readonly selection: Omit<SaveModel, 'secretId'>;
  /** Null: the stored one stays. */
  readonly apiKey: string | null;
}

/** The name of a credential in the secret store: a new one for each saved credential. */
export function secretName(provider: string, secretId: string): string {
  return `model/${provider}/${secretId}`;
}

/** @throws OlderNodesError */
export async function saveModel(
  deps: ManageModelDeps,
  input: ChangeTenantInput & ModelInput,
): Promise<Changed<ModelSaved> | Rejection> {
  const { selection, apiKey } = input;
  requireKnown(deps.isNew, needsOfModel(selection));
  const secret = { provider: selection.provider, apiKey };
  return await withSecret(deps, { ...input, secret }, (state, secretId) =>
    decideSaveModel(state, { ...selection, secretId }),
  );
}

export async function selectModel(
  deps: ChangeTenantDeps,
  input: ChangeTenantInput & Pick<SaveModel, 'provider' | 'model'>,
): Promise<Changed<null> | Rejection> {
  return await changeTenant(deps, input, (state) => decideSelectModel(state, input));
}

/** @throws OlderNodesError */
export async function saveModelPrices(
  deps: ManageModelDeps,
  input: ChangeTenantInput & { readonly prices: readonly TenantModelPrice[] },
): Promise<Changed<null> | Rejection> {
  requireKnown(deps.isNew, ['prices']);
  return await changeTenant(deps, input, (state) => decideSavePrices(state, input.prices));
}

export async function saveModelCredential(
  deps: ManageModelDeps,
  input: ChangeTenantInput & { readonly provider: ModelProvider; readonly apiKey: string },
): Promise<Changed<ModelSaved> | Rejection> {
  const { provider, apiKey } = input;
  return await withSecret(deps, { ...input, secret: { provider, apiKey } }, (state, secretId) =>
    decideSaveModelCredential(state, { provider, secretId: secretId ?? '' }),
  );
}

/** The event first: a secret that is gone while the tenant is still recorded as having it would fail its turns. */
export async function deleteModelCredential(
  deps: ManageModelDeps,
  input: ChangeTenantInput & { readonly provider: ModelProvider },
): Promise<Changed<ModelSaved> | Rejection> {
  const { provider } = input;
  return await withSecret(deps, { ...input, secret: { provider, apiKey: null } }, (state) =>
    decideDeleteModelCredential(state, provider),
  );
}

/** Writes what is absent of a tenant's configuration. @throws OlderNodesError */
export async function seedTenant(
  deps: ManageModelDeps,
  input: ChangeTenantInput & { readonly fixtureModel: boolean; readonly model: ModelInput | null },
): Promise<Changed<Seeded> | Rejection> {
  const { fixtureModel, model } = input;
  requireKnown(deps.isNew, needsOfModel(model?.selection));
  const secret = { provider: model?.selection.provider ?? 'fixture', apiKey: model?.apiKey ?? null } as const;
  return await withSecret(deps, { ...input, secret }, (state, secretId) =>
    decideSeed(state, { fixtureModel, model: model === null ? null : { ...model.selection, secretId } }),
  );
}

interface SecretInput extends ChangeTenantInput {
  readonly secret: { readonly provider: ModelProvider; readonly apiKey: string | null };
}

/**
 * Stores a credential under a new id, records it, and removes what it supersedes. Each step is complete before the next
 * begins, and none touches what another change has stored, so that wherever a crash or a second change comes in
 * between, the recorded credential is the stored one. A crash may leave a secret that nothing names; it is deleted with
 * the tenant.
 */
async function withSecret<R extends ModelSaved>(
  { secrets, ...deps }: ManageModelDeps,
  { secret: { provider, apiKey }, ...input }: SecretInput,
  decide: (state: TenantState, secretId: string | null) => Decision<TenantEvent, R>,
): Promise<Changed<R> | Rejection> {
  const { tenantId } = input;
  const secretId = apiKey === null ? null : newId('cr');
  if (apiKey !== null && secretId !== null) await secrets.put(tenantId, secretName(provider, secretId), apiKey);
  await faultPoint('credential.stored');
  const changed = await changeTenant(deps, input, (state) => decide(state, secretId));
  await faultPoint('credential.recorded');
  const unnamed = changed.kind === 'rejected' ? [] : [...changed.reply.superseded];
  const credential = changed.kind === 'rejected' ? null : changed.tenant.providers[provider]?.credential;
  if (secretId !== null && credential?.secretId !== secretId) unnamed.push(secretId);
  for (const id of unnamed) await secrets.remove(tenantId, secretName(provider, id));
  return changed;
}
