import type { RefreshFailure } from '../../domain/vault/events.ts';

/** Tokens as a server issued them. */
export interface Tokens {
  readonly accessToken: string;
  /** Null: it issued none; the one that was used stays valid. */
  readonly refreshToken: string | null;
  readonly expiresInSeconds: number | null;
}

export type TokenAnswer =
  | { readonly kind: 'tokens'; readonly tokens: Tokens }
  | { readonly kind: 'failed'; readonly reason: RefreshFailure };

export interface ClientCredentials {
  readonly clientId: string;
  readonly clientSecret: string | null;
}

export interface RefreshRequest extends ClientCredentials {
  readonly tokenEndpoint: string;
  readonly refreshToken: string;
  readonly resource: string;
}

export interface ExchangeRequest extends ClientCredentials {
  readonly tokenEndpoint: string;
  readonly code: string;
  readonly codeVerifier: string;
  readonly redirectUri: string;
  readonly resource: string;
}

/** The authorization server of a resource, as far as a sign-in needs it. */
export interface AuthorizationServer {
  readonly issuer: string;
  readonly authorizationEndpoint: string;
  readonly tokenEndpoint: string;
  readonly registrationEndpoint: string | null;
  /** Whether it accepts the address of a document as the id of a client. */
  readonly takesClientDocuments: boolean;
  /** Whether it names itself in the answer to the browser (RFC 9207). */
  readonly namesIssuer: boolean;
}

/** Why no sign-in can be started; the text is ours, never the server's. */
export interface SignInRefused {
  readonly kind: 'refused';
  readonly message: string;
}

/**
 * Requests to authorization servers. Of their answers only tokens, endpoints and ids are passed on: descriptions of
 * errors are whatever the server's owner wants people to read.
 */
export interface OauthClient {
  /** Never throws: every outcome has a name. */
  refresh(request: RefreshRequest): Promise<TokenAnswer>;
  exchange(request: ExchangeRequest): Promise<TokenAnswer>;
  /** Finds the server that a resource trusts (RFC 9728, RFC 8414). */
  discover(resource: string): Promise<AuthorizationServer | SignInRefused>;
  /** Makes a client (RFC 7591). */
  register(server: AuthorizationServer, redirectUri: string): Promise<ClientCredentials | SignInRefused>;
}
