import type { VaultEvent } from '../../domain/vault/events.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { StoredCommit } from '../../streams/commit.ts';
import type { AuditEntry } from '../tenants/audit.ts';

/** What the trail says of each change and each use, with the index of its event: of a credential never more than what it is for. */
export function vaultAuditEntries({
  ref,
  commit,
}: StoredCommit): { readonly index: number; readonly entry: AuditEntry }[] {
  const { at, actor, causation: requestId } = commit;
  return eventsOf<VaultEvent>(commit).map((event, index) => ({
    index,
    entry: { at, actor, requestId, action: event.type, ...told(ref.id, event) },
  }));
}

function told(vaultId: string, event: VaultEvent): Pick<AuditEntry, 'resource' | 'details'> {
  switch (event.type) {
    case 'vault.created': {
      const { name, subject } = event.data;
      return { resource: `vault:${vaultId}`, details: { name, subject } };
    }
    case 'vault.deleted':
      return { resource: `vault:${vaultId}`, details: {} };
    case 'vault.cleared':
      return { resource: `vault:${vaultId}`, details: { secrets: event.data.secretIds.length } };
    default: {
      const { credentialId, ...data } = event.data;
      return { resource: `credential:${vaultId}/${credentialId}`, details: detailsOf(event.type, data) };
    }
  }
}

type CredentialEventType = Exclude<VaultEvent['type'], `vault.${string}`>;

/** Members of an event that the trail shows; whatever an event gains later is not among them by itself. */
const SHOWN: Readonly<Record<CredentialEventType, readonly string[]>> = {
  'credential.saved': ['name', 'type', 'url', 'expiresAt'],
  'credential.rotated': ['expiresAt'],
  'credential.deleted': [],
  'credential.used': ['purpose', 'sessionId', 'turnId', 'url', 'generation'],
  'credential.refused': ['generation'],
  'credential.refresh_started': ['generation'],
  'credential.refreshed': ['generation', 'expiresAt'],
  'credential.refresh_failed': ['generation', 'reason', 'needsAuth'],
  'credential.sign_in_started': ['issuer', 'redirectUri', 'scopes', 'expiresAt'],
  'credential.sign_in_taken': [],
  'credential.signed_in': ['expiresAt'],
};

function detailsOf(type: CredentialEventType, data: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(data).filter(([name]) => SHOWN[type].includes(name)));
}
