import { z } from 'zod';

export const CREDENTIAL_TYPES = ['bearer', 'oauth'] as const;
export type CredentialType = (typeof CREDENTIAL_TYPES)[number];

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

/** How new tokens are obtained. The tokens themselves, and a client's secret, are in the secret store. */
const refreshSchema = z.strictObject({
  tokenEndpoint: z.string(),
  clientId: z.string(),
  /** The resource that the tokens are for (RFC 8707). */
  resource: z.string(),
});

/** What a change brings: where its secret is stored, and what is known about it. */
const grant = {
  /** Names the secret in the store; null: none yet, and the credential needs a sign-in. */
  secretId: z.string().nullable(),
  /** RFC 3339; null: expiry unknown. */
  expiresAt: z.string().nullable(),
  refresh: refreshSchema.nullable(),
};

/** Why a refresh gave no new token. */
export const REFRESH_FAILURES = [
  /** The server says that the grant is no longer valid. */
  'grant_gone',
  /** The server answered that it cannot refresh now. */
  'refused_for_now',
  /** The server was not reached: it has not seen the refresh token. */
  'not_reached',
  /** The server may have seen it or not. */
  'in_doubt',
] as const;

export const vaultEventSchemas = {
  'vault.created': z.strictObject({
    name: z.string(),
    /** The person whose vault it is. */
    subject: z.string(),
    metadata: z.record(z.string(), z.unknown()),
    /** What a repeated creation is compared with. */
    bodyHash: sha256,
  }),
  /** Its credentials are deleted with it; the secrets that they name follow. */
  'vault.deleted': z.strictObject({}),
  /** The secrets that a deletion left are deleted, too. */
  'vault.cleared': z.strictObject({ secretIds: z.array(z.string()) }),
  'credential.saved': z.strictObject({
    credentialId: z.string(),
    name: z.string(),
    type: z.enum(CREDENTIAL_TYPES),
    /** Where it may be sent: this origin, this path and below. */
    url: z.string(),
    scopes: z.array(z.string()),
    bodyHash: sha256,
    ...grant,
  }),
  'credential.rotated': z.strictObject({
    credentialId: z.string(),
    ...grant,
    /** Of the request: a repetition is answered and changes nothing. */
    keyHash: sha256,
    bodyHash: sha256,
  }),
  'credential.deleted': z.strictObject({ credentialId: z.string() }),
  /** It was used: recorded once per turn and address. */
  'credential.used': z.strictObject({
    credentialId: z.string(),
    generation: z.int(),
    purpose: z.enum(['mcp', 'sandbox']),
    sessionId: z.string(),
    turnId: z.string().nullable(),
    /** Origin and path of what it was sent to. */
    url: z.string(),
  }),
  /** The server has refused the token of this generation, and only a person can provide a new one. */
  'credential.refused': z.strictObject({ credentialId: z.string(), generation: z.int() }),
  /** Recorded before the server is asked; `secretId` is where the answer will be stored. */
  'credential.refresh_started': z.strictObject({
    credentialId: z.string(),
    generation: z.int(),
    refreshId: z.string(),
    secretId: z.string(),
    /** From then on another node may assume that this one has died. */
    until: z.string(),
  }),
  'credential.refreshed': z.strictObject({
    credentialId: z.string(),
    /** Of the tokens that were replaced. */
    generation: z.int(),
    refreshId: z.string(),
    secretId: z.string(),
    expiresAt: z.string().nullable(),
  }),
  'credential.refresh_failed': z.strictObject({
    credentialId: z.string(),
    generation: z.int(),
    refreshId: z.string(),
    reason: z.enum(REFRESH_FAILURES),
    /** Whether the access token can no longer be used, either. */
    needsAuth: z.boolean(),
    /** Before this time it is not tried again. */
    notBefore: z.string(),
  }),
  'credential.sign_in_started': z.strictObject({
    credentialId: z.string(),
    signInId: z.string(),
    /** SHA-256 of the state that the browser brings back. */
    stateHash: sha256,
    /** What the exchange needs and must not be shown: the code verifier, a client's secret. */
    secretId: z.string(),
    issuer: z.string(),
    /** Whether the server promised to name itself in the answer (RFC 9207). */
    namesIssuer: z.boolean(),
    tokenEndpoint: z.string(),
    clientId: z.string(),
    resource: z.string(),
    redirectUri: z.string(),
    scopes: z.array(z.string()),
    expiresAt: z.string(),
  }),
  /** The state has been used: whatever becomes of the exchange, it is not valid for another. */
  'credential.sign_in_taken': z.strictObject({ credentialId: z.string(), signInId: z.string() }),
  'credential.signed_in': z.strictObject({ credentialId: z.string(), signInId: z.string(), ...grant }),
} as const;

type Schemas = typeof vaultEventSchemas;
export type VaultEvent = {
  [T in keyof Schemas]: { readonly type: T; readonly data: z.infer<Schemas[T]> };
}[keyof Schemas];
export type RefreshSettings = z.infer<typeof refreshSchema>;
export type EventData<T extends VaultEvent['type']> = Extract<VaultEvent, { type: T }>['data'];
export type RefreshFailure = (typeof REFRESH_FAILURES)[number];
