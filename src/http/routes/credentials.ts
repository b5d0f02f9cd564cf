import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf } from '../../auth/caller.ts';
import {
  deleteCredential,
  readCredential,
  readVault,
  rotateCredential,
  saveCredential,
  vaultRef,
} from '../../commands/vault/vaults.ts';
import type { SentGrant } from '../../commands/vault/vaults.ts';
import { withoutNulls } from '../../domain/kernel/optional.ts';
import type { Credential } from '../../domain/vault/state.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { timestamp } from '../../lib/clock.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { idOfRequest } from '../../lib/ids.ts';
import { canonicalResource } from '../../lib/url-scope.ts';
import { requireCallable } from '../callable.ts';
import { operations } from '../described.ts';
import { callerOf } from '../gate.ts';
import { accepted } from '../problem.ts';
import * as wire from '../wire/vaults.ts';
import { found } from './vaults.ts';
import type { VaultRouteDeps } from './vaults.ts';

const docs = operations('Vaults', {
  saveCredential: [
    'Save a credential for a server',
    'The secret is sealed and never shown again. It is sent to the origin of `url`, to its path and below, and nowhere else. An `oauth` credential without tokens is `needs_auth` until its sign-in. Repeatable by idempotencyKey.',
  ],
  listCredentials: ['The credentials of a vault, never their secrets'],
  getCredential: ['One credential, never its secret'],
  rotateCredential: [
    'Rotate a credential',
    'Another secret of the same type for the same url takes its place, at once, and turns that wait for it continue by themselves. Repeatable by idempotencyKey.',
  ],
  deleteCredential: ['Delete a credential with its secret'],
});

/** Credentials of a vault: a secret goes in, is sealed, and is never shown again. */
export function credentialRoutes(deps: VaultRouteDeps): FastifyPluginAsyncZod {
  const { freshness, egress } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.vaults } };
    const url = '/v1/vaults/:vaultId/credentials';
    app.post(
      url,
      {
        config,
        schema: {
          ...docs.saveCredential,
          params: wire.vaultPath,
          body: wire.saveCredentialBody,
          response: { 201: wire.credential },
        },
      },
      async (request, reply) => {
        const caller = callerOf(request);
        const { requestId, idempotencyKey, name, auth } = request.body;
        requireCallableAuth(egress, auth);
        const ref = vaultRef(caller.tenantId, request.params.vaultId);
        const command = {
          credentialId: idOfRequest('cr', caller.tenantId, ref.id, caller.subject ?? '', idempotencyKey),
          ...{ name, type: auth.type, url: auth.url, scopes: auth.type === 'oauth' ? (auth.scopes ?? []) : [] },
          bodyHash: sha256Hex(canonicalJson({ name, auth })),
          sent: grantOf(auth),
        };
        const meta = { actor: actorOf(caller), causation: requestId, actsFor: caller.subject };
        const { of, position } = accepted(await saveCredential(deps, { ref, ...command, ...meta }));
        await freshness('vaults', ref, position);
        return await reply.code(201).send(toCredentialResponse(ref.id, of));
      },
    );
    app.get(
      url,
      { config, schema: { ...docs.listCredentials, params: wire.vaultPath, response: { 200: wire.credentialList } } },
      async (request) => {
        const { tenantId, subject } = callerOf(request);
        const ref = vaultRef(tenantId, request.params.vaultId);
        const { credentials } = found(await readVault(deps, ref, subject));
        return { credentials: Object.values(credentials).map((one) => toCredentialResponse(ref.id, one)) };
      },
    );
    await app.register(oneCredential(deps));
  };
}

function oneCredential(deps: VaultRouteDeps): FastifyPluginAsyncZod {
  const { freshness, egress } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.vaults } };
    const url = '/v1/vaults/:vaultId/credentials/:credentialId';
    const params = wire.credentialPath;
    app.get(
      url,
      { config, schema: { ...docs.getCredential, params, response: { 200: wire.credential } } },
      async (request) => {
        const { tenantId, subject } = callerOf(request);
        const { vaultId, credentialId } = request.params;
        const reach = { ref: vaultRef(tenantId, vaultId), actsFor: subject };
        return toCredentialResponse(vaultId, found(await readCredential(deps, reach, credentialId)));
      },
    );
    app.post(
      url,
      {
        config,
        schema: {
          ...docs.rotateCredential,
          params,
          body: wire.rotateCredentialBody,
          response: { 200: wire.credential },
        },
      },
      async (request) => {
        const caller = callerOf(request);
        const { vaultId, credentialId } = request.params;
        const { requestId, idempotencyKey, auth } = request.body;
        requireCallableAuth(egress, auth);
        const ref = vaultRef(caller.tenantId, vaultId);
        const command = {
          ...{ credentialId, type: auth.type, url: auth.url, sent: grantOf(auth) },
          keyHash: sha256Hex(canonicalJson([caller.subject ?? '', idempotencyKey])),
          bodyHash: sha256Hex(canonicalJson({ auth })),
        };
        const meta = { actor: actorOf(caller), causation: requestId, actsFor: caller.subject };
        const { of, position } = accepted(await rotateCredential(deps, { ref, ...command, ...meta }));
        await freshness('vaults', ref, position);
        return toCredentialResponse(vaultId, of);
      },
    );
    app.delete(
      url,
      { config, schema: { ...docs.deleteCredential, params, response: { 200: wire.credentialDeleted } } },
      async (request) => {
        const caller = callerOf(request);
        const { vaultId, credentialId } = request.params;
        const ref = vaultRef(caller.tenantId, vaultId);
        const meta = { actor: actorOf(caller), causation: request.id, actsFor: caller.subject };
        const { position } = accepted(await deleteCredential(deps, { ref, credentialId, ...meta }));
        await freshness('vaults', ref, position);
        return { id: credentialId, vaultId, deleted: true as const };
      },
    );
    await Promise.resolve();
  };
}

/** @throws ProblemError invalid_request when this Host would not call what the credential is for */
function requireCallableAuth(egress: VaultRouteDeps['egress'], auth: wire.SentAuth): void {
  requireCallable(egress, auth.url, 'auth.url');
  if (auth.type === 'oauth') requireCallable(egress, auth.refresh?.tokenEndpoint, 'auth.refresh.tokenEndpoint');
}

function grantOf(auth: wire.SentAuth): SentGrant {
  if (auth.type === 'bearer') {
    return { secret: { type: 'bearer', token: auth.token }, expiresAt: null, refresh: null };
  }
  const { accessToken, refresh, url } = auth;
  const expiresAt = auth.expiresAt === undefined ? null : timestamp(Date.parse(auth.expiresAt));
  if (accessToken === undefined) return { secret: null, expiresAt: null, refresh: null };
  const { refreshToken = null, clientSecret = null } = refresh ?? {};
  return {
    secret: { type: 'oauth', accessToken, refreshToken, clientSecret, expiresAt },
    expiresAt,
    refresh:
      refresh === undefined
        ? null
        : { tokenEndpoint: refresh.tokenEndpoint, clientId: refresh.clientId, resource: canonicalResource(url) },
  };
}

/** Members in the order in which they are documented. */
export function toCredentialResponse(vaultId: string, credential: Credential) {
  const { id, name, type, url, state, scopes, expiresAt, createdAt, rotatedAt } = credential;
  return {
    ...{ id, vaultId, name, type, url, state },
    ...(scopes.length === 0 ? {} : { scopes: [...scopes] }),
    ...withoutNulls({ expiresAt }),
    createdAt,
    ...withoutNulls({ rotatedAt }),
  };
}
