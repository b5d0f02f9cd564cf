import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import { actorOf } from '../../auth/caller.ts';
import { authorize, completeSignIn } from '../../commands/vault/sign-in.ts';
import type { SignInDeps } from '../../commands/vault/sign-in.ts';
import { vaultRef } from '../../commands/vault/vaults.ts';
import { operations } from '../described.ts';
import type { Freshness } from '../freshness.ts';
import { callerOf } from '../gate.ts';
import { accepted } from '../problem.ts';
import * as wire from '../wire/vaults.ts';
import { toCredentialResponse } from './credentials.ts';

const docs = operations('Vaults', {
  authorizeCredential: [
    'Begin a sign-in for an OAuth credential',
    'Finds the authorization server of the credential’s url and answers with the address for the person’s browser, which is good for 10 minutes. The server sends the browser back to `redirectUri` with `code`, `state` and perhaps `iss`: send them to `complete`.',
  ],
  completeCredential: [
    'End a sign-in',
    'With what came back to `redirectUri`. A state is good once. The tokens take the place of those that the credential had, and turns that wait for them continue by themselves.',
  ],
});

export interface SignInRouteDeps extends SignInDeps {
  readonly freshness: Freshness;
}

/** How a person signs in to a server, so that agents may call it in the person's name. */
export function signInRoutes(deps: SignInRouteDeps): FastifyPluginAsyncZod {
  return async (app) => {
    const config = { rules: { access: ACCESS.vaults } };
    const params = wire.credentialPath;
    app.post(
      '/v1/vaults/:vaultId/credentials/:credentialId/authorize',
      {
        config,
        schema: {
          ...docs.authorizeCredential,
          params,
          body: wire.authorizeBody,
          response: { 200: wire.authorizeAnswer },
        },
      },
      async (request) => {
        const caller = callerOf(request);
        const { vaultId, credentialId } = request.params;
        const { requestId = request.id, redirectUri, scopes } = request.body;
        const meta = { actor: actorOf(caller), causation: requestId, actsFor: caller.subject };
        const input = { ref: vaultRef(caller.tenantId, vaultId), credentialId, redirectUri, scopes, ...meta };
        const { url, expiresAt } = accepted(await authorize(deps, input));
        return { url, expiresAt };
      },
    );
    app.post(
      '/v1/vaults/:vaultId/credentials/:credentialId/complete',
      {
        config,
        schema: { ...docs.completeCredential, params, body: wire.completeBody, response: { 200: wire.credential } },
      },
      async (request) => {
        const caller = callerOf(request);
        const { vaultId, credentialId } = request.params;
        const { requestId = request.id, code, state, iss } = request.body;
        const ref = vaultRef(caller.tenantId, vaultId);
        const meta = { actor: actorOf(caller), causation: requestId, actsFor: caller.subject };
        const outcome = accepted(await completeSignIn(deps, { ref, credentialId, code, state, iss, ...meta }));
        await deps.freshness('vaults', ref, outcome.position);
        return toCredentialResponse(vaultId, outcome.of);
      },
    );
    await Promise.resolve();
  };
}
