import type { SendCommandDeps } from '../commands/session/command-handler.ts';
import type { CreateTenantDeps } from '../commands/tenant/create-tenant.ts';
import type { CredentialFingerprint } from '../http/sse.ts';
import type { Directory } from '../projections/directory/directory.ts';
import type { Keyring } from '../streams/keyring.ts';
import type { Config } from './config.ts';
import { dataKeys } from './data-keys.ts';
import { tenantModel } from './models.ts';

/** What use cases ask the directory; each answer is at hand on every node. */
export function answersOf(
  keyring: Keyring,
  directory: Directory,
  config: Config,
): Pick<CreateTenantDeps, 'publish' | 'idOf' | 'prepare'> & Pick<SendCommandDeps, 'isDraining' | 'tenantModel'> {
  return {
    publish: async (tenant, position) => await directory.publish(tenant, position),
    prepare: dataKeys(keyring, directory),
    idOf: (key) => directory.tenants.find((tenant) => tenant.idempotencyKey === key)?.id,
    isDraining: (tenantId) => directory.tenant(tenantId)?.state !== 'open',
    tenantModel: tenantModel(directory, config.fixtureModel),
  };
}

/** A stream ends with what vouched for it, on every node, as soon as the directory says so. */
export function fingerprintsOf(directory: Directory): CredentialFingerprint {
  return ({ kind, tenantId, principalId, credential }) => {
    if (kind === 'issuer') {
      const issuers = directory.issuers(tenantId);
      return Object.hasOwn(issuers, principalId) ? JSON.stringify(issuers[principalId]) : null;
    }
    const own = directory.principals(credential).find((principal) => principal.tenantId === tenantId);
    // Not by the role alone: executors may swap tokens, and keys may be removed and added again.
    return own?.role === kind && own.principalId === principalId ? `${kind}:${principalId}` : null;
  };
}
