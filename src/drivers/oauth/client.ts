import * as oauth from 'oauth4webapi';
import { z } from 'zod';
import type { EgressClient } from '../../lib/egress-client.ts';
import { isLoopbackHost } from '../../lib/egress.ts';
import { AddressRefusedError } from '../../lib/guarded-lookup.ts';
import { canonicalResource } from '../../lib/url-scope.ts';
import type {
  AuthorizationServer,
  ClientCredentials,
  ExchangeRequest,
  OauthClient,
  RefreshRequest,
  SignInRefused,
  TokenAnswer,
} from './port.ts';

export interface OauthClientOptions {
  /** Enforces the policy for outgoing addresses, and follows no redirect. */
  readonly http: EgressClient;
  /** For one answer as a whole, ms. */
  readonly answerMs: number;
  /** Named to a server that registers clients. */
  readonly clientName: string;
}

/** Whatever a server sends beyond this is not read. */
const ANSWER_BYTES_MAX = 262_144;
/** Of a token, an endpoint or an id. */
const TEXT_CHARS_MAX = 16_384;
/** The connection was never made, so nothing was sent. */
const NOT_CONNECTED = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
]);
const resourceMetadata = z.object({ resource: z.url(), authorization_servers: z.array(z.string()).optional() });
/** Answers by which a server says that a grant, or the client that it was given to, no longer exists. */
const GONE = new Set(['invalid_grant', 'invalid_client', 'unauthorized_client']);

class TooLongError extends Error {}

/** Asks authorization servers by OAuth 2.1. */
export function openOauthClient(options: OauthClientOptions): OauthClient {
  const asking = askingBy(options);
  return {
    refresh: async (request) => await refresh(asking, request),
    exchange: async (request) => await exchange(asking, request),
    discover: async (resource) => await discover(asking, resource),
    register: async (server, redirectUri) => await register(asking, server, { redirectUri, ...options }),
  };
}

type Asking = Readonly<{
  [oauth.customFetch]: (
    url: string,
    init: { method: string; headers: Record<string, string>; body?: unknown },
  ) => Promise<Response>;
  // oxlint-disable-next-line typescript/no-deprecated -- it stands out because it has to be looked at: isSafe does
  [oauth.allowInsecureRequests]: true;
}>;

/** Plain http is left to the policy for addresses, and to the check of each endpoint that a server names. */
function askingBy({ http, answerMs }: OauthClientOptions): Asking {
  return {
    // oxlint-disable-next-line typescript/no-deprecated -- plain http passes isSafe on loopback only
    [oauth.allowInsecureRequests]: true,
    [oauth.customFetch]: async (url, { method, headers, body }) => {
      if (!isSafe(url)) throw new AddressRefusedError();
      const sent = body instanceof URLSearchParams ? body.toString() : typeof body === 'string' ? body : null;
      const signal = AbortSignal.timeout(answerMs);
      const answer = await http.fetch(url, { method, headers, signal, body: sent });
      const text = await bounded(answer.body ?? []);
      const kept = ['content-type', 'www-authenticate'].flatMap((name) => {
        const value = answer.headers.get(name);
        return value === null ? [] : [[name, value] as const];
      });
      const hasBody = ![204, 205, 304].includes(answer.status);
      return new Response(hasBody ? text : null, { status: answer.status, headers: Object.fromEntries(kept) });
    },
  };
}

async function bounded(body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    if (bytes > ANSWER_BYTES_MAX) throw new TooLongError();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

function isSafe(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { protocol, hostname } = new URL(url);
  return protocol === 'https:' || (protocol === 'http:' && isLoopbackHost(hostname));
}

async function refresh(asking: Asking, request: RefreshRequest): Promise<TokenAnswer> {
  const { tokenEndpoint, refreshToken, resource } = request;
  const server = serverOf(tokenEndpoint);
  const client = { client_id: request.clientId };
  return await tokens(async () => {
    const options = { ...asking, additionalParameters: { resource } };
    const answer = await oauth.refreshTokenGrantRequest(server, client, authOf(request), refreshToken, options);
    return await oauth.processRefreshTokenResponse(server, client, answer);
  });
}

async function exchange(asking: Asking, request: ExchangeRequest): Promise<TokenAnswer> {
  const { tokenEndpoint, code, codeVerifier, redirectUri, resource } = request;
  const server = serverOf(tokenEndpoint);
  const client = { client_id: request.clientId };
  return await tokens(async () => {
    // What the browser brought back has been checked against what was kept; this checks that it is one code.
    const brought = oauth.validateAuthResponse(server, client, new URLSearchParams({ code }), oauth.expectNoState);
    const options = { ...asking, additionalParameters: { resource } };
    const grant = [server, client, authOf(request), brought, redirectUri, codeVerifier, options] as const;
    return await oauth.processAuthorizationCodeResponse(
      server,
      client,
      await oauth.authorizationCodeGrantRequest(...grant),
    );
  });
}

function serverOf(tokenEndpoint: string): oauth.AuthorizationServer {
  return { issuer: new URL(tokenEndpoint).origin, token_endpoint: tokenEndpoint };
}

function authOf({ clientSecret }: ClientCredentials): oauth.ClientAuth {
  return clientSecret === null ? oauth.None() : oauth.ClientSecretPost(clientSecret);
}

async function tokens(ask: () => Promise<oauth.TokenEndpointResponse>): Promise<TokenAnswer> {
  try {
    const { access_token: accessToken, refresh_token: refreshToken = null, expires_in: seconds } = await ask();
    if ([accessToken, refreshToken ?? ''].some((text) => text.length > TEXT_CHARS_MAX)) return failed('in_doubt');
    return { kind: 'tokens', tokens: { accessToken, refreshToken, expiresInSeconds: seconds ?? null } };
  } catch (error) {
    return failed(reasonOf(error));
  }
}

function failed(reason: Extract<TokenAnswer, { kind: 'failed' }>['reason']): TokenAnswer {
  return { kind: 'failed', reason };
}

/** Only what is certain is reported: anything else may have reached the server. */
function reasonOf(error: unknown): Extract<TokenAnswer, { kind: 'failed' }>['reason'] {
  if (error instanceof oauth.ResponseBodyError) return GONE.has(error.error) ? 'grant_gone' : 'refused_for_now';
  if (error instanceof oauth.WWWAuthenticateChallengeError) return 'grant_gone';
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    if (cause instanceof AddressRefusedError) return 'not_reached';
    if ('code' in cause && NOT_CONNECTED.has(String(cause.code))) return 'not_reached';
  }
  const answer = error instanceof Error && error.cause instanceof Response ? error.cause : null;
  // It refused before it could use anything up.
  const isRefusal = answer !== null && ((answer.status >= 400 && answer.status < 500) || answer.status === 503);
  return isRefusal ? 'refused_for_now' : 'in_doubt';
}

async function discover(asking: Asking, resource: string): Promise<AuthorizationServer | SignInRefused> {
  try {
    const issuer = await issuerOf(asking, resource);
    const metadata = await metadataOf(asking, issuer);
    const { authorization_endpoint: authorizationEndpoint, token_endpoint: tokenEndpoint } = metadata;
    if (authorizationEndpoint === undefined || tokenEndpoint === undefined) return refused('names no endpoints');
    const methods = metadata.code_challenge_methods_supported ?? [];
    if (!methods.includes('S256')) return refused('does not protect codes by PKCE with S256');
    const registrationEndpoint = metadata.registration_endpoint ?? null;
    const named = [authorizationEndpoint, tokenEndpoint, registrationEndpoint ?? authorizationEndpoint];
    if (!named.every((url) => url.length <= 2_000 && isSafe(url)))
      return refused('names an endpoint that is not https');
    return {
      ...{ issuer: metadata.issuer, authorizationEndpoint, tokenEndpoint, registrationEndpoint },
      takesClientDocuments: metadata['client_id_metadata_document_supported'] === true,
      namesIssuer: metadata.authorization_response_iss_parameter_supported === true,
    };
  } catch {
    return refused('cannot be reached, or does not answer as OAuth asks of it');
  }
}

/** The first server that the resource trusts; a resource that says nothing is taken to be its own (older servers are). */
async function issuerOf(asking: Asking, resource: string): Promise<URL> {
  const url = new URL(resource);
  const answer = await oauth.resourceDiscoveryRequest(url, asking);
  if (answer.status === 404) return new URL(url.origin);
  const copy = answer.clone();
  const { authorization_servers: [first] = [] } = await oauth
    .processResourceDiscoveryResponse(url, answer)
    .catch(async () => await asFarAsItGoes(copy, resource));
  return new URL(first ?? url.origin);
}

/** Servers name themselves with and without a slash at the end: the same address in its canonical form is the same. */
async function asFarAsItGoes(answer: Response, resource: string): Promise<{ authorization_servers?: string[] }> {
  const { resource: own, authorization_servers: servers = [] } = resourceMetadata.parse(await answer.json());
  if (canonicalResource(own) !== canonicalResource(resource)) throw new Error('the metadata are of another resource');
  return { authorization_servers: servers };
}

async function metadataOf(asking: Asking, issuer: URL): Promise<oauth.AuthorizationServer> {
  const answer = await oauth.discoveryRequest(issuer, { ...asking, algorithm: 'oauth2' });
  if (answer.status === 200) return await oauth.processDiscoveryResponse(issuer, answer);
  const second = await oauth.discoveryRequest(issuer, { ...asking, algorithm: 'oidc' });
  return await oauth.processDiscoveryResponse(issuer, second);
}

async function register(
  asking: Asking,
  { issuer, registrationEndpoint }: AuthorizationServer,
  { redirectUri, clientName }: { readonly redirectUri: string; readonly clientName: string },
): Promise<ClientCredentials | SignInRefused> {
  if (registrationEndpoint === null) return refused('registers no clients');
  try {
    const answer = await oauth.dynamicClientRegistrationRequest(
      { issuer, registration_endpoint: registrationEndpoint },
      {
        client_name: clientName,
        redirect_uris: [redirectUri],
        grant_types: ['authorization_code', 'refresh_token'],
        response_types: ['code'],
        token_endpoint_auth_method: 'none',
      },
      asking,
    );
    const { client_id: clientId, client_secret: secret } = await oauth.processDynamicClientRegistrationResponse(answer);
    if (clientId.length > 2_000 || (typeof secret === 'string' && secret.length > TEXT_CHARS_MAX)) {
      return refused('gives ids that are too long');
    }
    return { clientId, clientSecret: typeof secret === 'string' ? secret : null };
  } catch {
    return refused('did not register the Host as its client');
  }
}

function refused(what: string): SignInRefused {
  return { kind: 'refused', message: `The authorization server ${what}.` };
}
