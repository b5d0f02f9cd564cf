import type { VaultEvent } from '../../domain/vault/events.ts';

/** What was changed, and what of it is shown. */
export interface AuditSubject {
  /** As `<kind>:<id>`. */
  readonly resource: string;
  readonly details: Readonly<Record<string, unknown>>;
}

/** What the trail says of each change and each use: of a credential never more than what it is for. */
export function vaultSubject(vaultId: string, event: VaultEvent): AuditSubject {
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
