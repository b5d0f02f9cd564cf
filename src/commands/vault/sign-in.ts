import { hash, randomBytes } from 'node:crypto';
import { isRejection, reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { reachCredential } from '../../domain/vault/decide.ts';
import { decideSignedIn, decideStartSignIn, decideTakeSignIn, reachForSignIn } from '../../domain/vault/sign-in.ts';
import type { Credential } from '../../domain/vault/state.ts';
import type {
  AuthorizationServer,
  ClientCredentials,
  OauthClient,
  SignInRefused,
  Tokens,
} from '../../drivers/oauth/port.ts';
import { timestamp } from '../../lib/clock.ts';
import type { Clock } from '../../lib/clock.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { newId } from '../../lib/ids.ts';
import { canonicalResource } from '../../lib/url-scope.ts';
import type { OauthSecret } from './secrets.ts';
import type { VaultChanged, VaultDeps, VaultInput } from './vaults.ts';

export interface SignInDeps extends VaultDeps {
  readonly oauth: OauthClient;
  readonly clock: Clock;
}

export interface AuthorizeInput extends VaultInput {
  readonly credentialId: string;
  readonly redirectUri: string;
  /** Absent: those that the credential was saved with. */
  readonly scopes: readonly string[] | undefined;
}

/** Where the person's browser goes. */
export interface Authorizing {
  readonly kind: 'done';
  readonly url: string;
  readonly expiresAt: string;
}

/** How long a person may take in the browser, ms. */
const SIGN_IN_MS = 600_000;
const RANDOM_BYTES = 32;

/**
 * Begins a sign-in: finds the server that the credential's address trusts, gets a client there, and makes the address
 * for the browser. The answer is recognised by a state that is valid once; what only the Host may know is sealed.
 */
export async function authorize(deps: SignInDeps, input: AuthorizeInput): Promise<Authorizing | Rejection> {
  const { ref, actsFor, credentialId, redirectUri, actor, causation } = input;
  const known = reachForSignIn((await deps.vaults.refresh(ref)).state, actsFor, credentialId);
  if (isRejection(known)) return known;
  const resource = canonicalResource(known.url);
  const server = await deps.oauth.discover(resource);
  if ('kind' in server) return unusable(server);
  const client = await clientOf(deps, input, { known, server });
  if ('kind' in client) return unusable(client);
  const place = { tenant: ref.tenant, vaultId: ref.id };
  const [state, codeVerifier, secretId] = [randomText(), randomText(), newId('se')];
  const expiresAt = timestamp(deps.clock() + SIGN_IN_MS);
  const scopes = [...(input.scopes ?? known.scopes)];
  const { clientId, clientSecret } = client;
  await deps.secrets.put(place, { credentialId, secretId }, { type: 'sign_in', codeVerifier, clientSecret });
  const { issuer, namesIssuer, tokenEndpoint } = server;
  const begun = {
    ...{ actsFor, credentialId, signInId: newId('si'), stateHash: sha256Hex(state), secretId, expiresAt },
    ...{ issuer, namesIssuer, tokenEndpoint, clientId, resource, redirectUri, scopes },
  };
  const decide = (newest: Parameters<typeof decideStartSignIn>[0]) => decideStartSignIn(newest, begun);
  const outcome = await deps.loop.execute(deps.vaults, ref, { actor, causation, decide });
  if (outcome.kind === 'rejected') {
    await deps.secrets.remove(place, [{ credentialId, secretId }]);
    return outcome;
  }
  await deps.secrets.remove(place, outcome.reply.superseded);
  const url = new URL(server.authorizationEndpoint);
  const asked = {
    ...{ response_type: 'code', client_id: clientId, redirect_uri: redirectUri, state, resource },
    ...{ code_challenge: hash('sha256', codeVerifier, 'base64url'), code_challenge_method: 'S256' },
    ...(scopes.length === 0 ? {} : { scope: scopes.join(' ') }),
  };
  for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value);
  return { kind: 'done', url: url.href, expiresAt };
}

export interface CompleteInput extends VaultInput {
  readonly credentialId: string;
  readonly code: string;
  readonly state: string;
  readonly iss: string | undefined;
}

/** Completes a sign-in with what the browser brought back. */
export async function completeSignIn(
  deps: SignInDeps,
  input: CompleteInput,
): Promise<VaultChanged<Credential> | Rejection> {
  const { ref, actsFor, credentialId, code, iss, actor, causation } = input;
  const { loop, vaults, secrets, oauth, clock } = deps;
  const taking = { actsFor, credentialId, stateHash: sha256Hex(input.state), iss };
  const taken = await loop.execute(vaults, ref, {
    ...{ actor, causation },
    decide: (state) => decideTakeSignIn(state, { ...taking, nowMs: clock() }),
  });
  if (taken.kind === 'rejected') return taken;
  const { signInId, secretId: openId, tokenEndpoint, clientId, resource, redirectUri } = taken.reply;
  const place = { tenant: ref.tenant, vaultId: ref.id };
  const open = { credentialId, secretId: openId };
  const kept = await secrets.get(place, open);
  await secrets.remove(place, [open]);
  if (kept?.type !== 'sign_in') return again();
  const { codeVerifier, clientSecret } = kept;
  const answer = await oauth.exchange({
    tokenEndpoint,
    code,
    codeVerifier,
    redirectUri,
    resource,
    clientId,
    clientSecret,
  });
  if (answer.kind === 'failed') return again();
  const secret = secretOf(answer.tokens, clientSecret, clock());
  const secretId = newId('se');
  await secrets.put(place, { credentialId, secretId }, secret);
  const refresh = secret.refreshToken === null ? null : { tokenEndpoint, clientId, resource };
  const grant = { credentialId, signInId, secretId, expiresAt: secret.expiresAt, refresh };
  const outcome = await loop.execute(vaults, ref, {
    ...{ actor, causation },
    decide: (state) => decideSignedIn(state, grant),
  });
  if (outcome.kind === 'rejected') {
    await secrets.remove(place, [{ credentialId, secretId }]);
    return outcome;
  }
  await faultPoint('sign-in.recorded');
  await secrets.remove(place, outcome.reply.superseded);
  const of = reachCredential((await vaults.load(ref)).state, actsFor, credentialId);
  return isRejection(of) ? of : { kind: 'done', of, position: outcome.position };
}

/** The client of the credential's tokens, if the server is the same; otherwise one that is made for it. */
async function clientOf(
  { oauth, secrets }: SignInDeps,
  { ref, credentialId, redirectUri }: AuthorizeInput,
  { known, server }: { readonly known: Credential; readonly server: AuthorizationServer },
): Promise<ClientCredentials | SignInRefused> {
  const { refresh, secretId } = known;
  // A server that registers clients ties them to the address that the browser comes back to.
  const isOurs = refresh?.tokenEndpoint === server.tokenEndpoint && server.registrationEndpoint === null;
  if (refresh === null || !isOurs) return await oauth.register(server, redirectUri);
  const place = { tenant: ref.tenant, vaultId: ref.id };
  const secret = secretId === null ? null : await secrets.get(place, { credentialId, secretId });
  return { clientId: refresh.clientId, clientSecret: secret?.type === 'oauth' ? secret.clientSecret : null };
}

function secretOf(tokens: Tokens, clientSecret: string | null, nowMs: number): OauthSecret {
  const { accessToken, refreshToken, expiresInSeconds } = tokens;
  const expiresAt = expiresInSeconds === null ? null : timestamp(nowMs + expiresInSeconds * 1_000);
  return { type: 'oauth', accessToken, refreshToken, clientSecret, expiresAt };
}

function unusable({ message }: SignInRefused): Rejection {
  return reject('conflict', `${message} Store tokens for the credential by rotating it instead.`);
}

function again(): Rejection {
  return reject('conflict', 'The authorization server did not take the code. Begin another sign-in with authorize.');
}

function randomText(): string {
  return randomBytes(RANDOM_BYTES).toString('base64url');
}
