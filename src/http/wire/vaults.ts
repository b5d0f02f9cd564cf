import { z } from 'zod';
import { clientId, jsonObject, text } from '../../domain/kernel/schemas.ts';
import { CREDENTIAL_TYPES } from '../../domain/vault/events.ts';
import { isCallableBase, isCallableForm, isLoopbackHost } from '../../lib/egress.ts';
import { hasSubjectForm, isSubject } from '../../auth/subject.ts';
import { idempotencyKey, nullableCursor, requestId, timestamp, url } from './parts.ts';
import { listQuery } from './schemas.ts';

/** Shapes of vaults and credentials. Secrets come in and never go out. */

const METADATA_CHARS_MAX = 16_384;
const SECRET_CHARS_MAX = 16_384;

/** As a header can carry it. */
const secret = z
  .string()
  .regex(/^[\x21-\x7e]+$/, 'must be visible ASCII characters')
  .max(SECRET_CHARS_MAX);
/** Otherwise a secret is sent there in the clear. */
const address = url(
  (value) => isCallableBase(value) && (value.startsWith('https:') || isLoopbackHost(new URL(value).hostname)),
  'must be https, or http on loopback, without credentials, query or fragment',
);
const subject = z
  .string()
  .refine((value) => hasSubjectForm(value), 'must be 1 to 200 visible ASCII characters')
  .refine((value) => isSubject(value), 'is reserved');
const scopes = z.array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]{1,200}$/, 'must be a scope of OAuth')).max(50);
const name = text(1, 200);

export const vaultPath = z.strictObject({ vaultId: clientId });
export const credentialPath = vaultPath.extend({ credentialId: clientId });
export const createVaultBody = z.strictObject({
  requestId,
  idempotencyKey,
  name,
  /** As a subject: oneself, and it may be left out. */
  subject: subject.optional(),
  metadata: jsonObject
    .refine((value) => JSON.stringify(value).length <= METADATA_CHARS_MAX, `at most ${METADATA_CHARS_MAX} characters`)
    .optional(),
});
export const vaultListQuery = listQuery.extend({ subject: subject.optional() });
/** Of an application: whose vaults go; as a subject it may be left out. */
export const deleteVaultsQuery = z.strictObject({ subject: subject.optional() });
export const vault = z
  .object({
    id: z.string(),
    name: z.string(),
    subject: z.string(),
    metadata: z.record(z.string(), z.unknown()),
    createdAt: timestamp,
    updatedAt: timestamp,
  })
  .meta({ id: 'Vault' });
export const vaultList = z.object({ vaults: z.array(vault), nextCursor: nullableCursor });
export const vaultDeleted = z.object({ id: z.string(), deleted: z.literal(true) });
export const vaultsDeleted = z.object({ subject: z.string(), deleted: z.int() });

const bearer = z.strictObject({ type: z.literal('bearer'), url: address, token: secret });
const refresh = z.strictObject({
  tokenEndpoint: address,
  clientId: text(1, 2_000),
  refreshToken: secret,
  clientSecret: secret.optional(),
});
const oauth = z
  .strictObject({
    type: z.literal('oauth'),
    url: address,
    accessToken: secret.optional(),
    expiresAt: z.iso.datetime({ offset: true }).optional(),
    refresh: refresh.optional(),
    scopes: scopes.optional(),
  })
  .refine(
    ({ accessToken, expiresAt, refresh: renewal }) =>
      accessToken !== undefined || (expiresAt === undefined && renewal === undefined),
    { error: 'is required with expiresAt or refresh', path: ['accessToken'] },
  );
const auth = z.discriminatedUnion('type', [bearer, oauth]);
export type SentAuth = z.output<typeof auth>;

export const saveCredentialBody = z.strictObject({ requestId, idempotencyKey, name, auth });
export const rotateCredentialBody = z.strictObject({ requestId, idempotencyKey, auth });
export const credential = z
  .object({
    id: z.string(),
    vaultId: z.string(),
    name: z.string(),
    type: z.enum(CREDENTIAL_TYPES),
    url: z.string(),
    /** `needs_auth`: unusable before a sign-in or a rotation. */
    state: z.enum(['ready', 'needs_auth']),
    scopes: z.array(z.string()).optional(),
    expiresAt: timestamp.optional(),
    createdAt: timestamp,
    rotatedAt: timestamp.optional(),
  })
  .meta({ id: 'VaultCredential' });
export const authorizeBody = z.strictObject({
  requestId: requestId.optional(),
  /** Where the browser returns to: a page of the application, which forwards what it is given. */
  redirectUri: url(
    (value) => isCallableForm(value) && (value.startsWith('https:') || isLoopbackHost(new URL(value).hostname)),
    'must be https, or http on loopback, without credentials',
  ),
  scopes: scopes.optional(),
});
export const authorizeAnswer = z.object({ url: z.string(), expiresAt: timestamp });
const brought = z.string().regex(/^[\x20-\x7e]{1,4096}$/, 'must be 1 to 4,096 printable ASCII characters');
export const completeBody = z.strictObject({
  requestId: requestId.optional(),
  code: brought,
  state: brought,
  /** As it came back, where it did. */
  iss: text(1, 2_000).optional(),
});
export const credentialList = z.object({ credentials: z.array(credential) });
export const credentialDeleted = z.object({ id: z.string(), vaultId: z.string(), deleted: z.literal(true) });
