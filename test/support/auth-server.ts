import { createHash, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { IncomingMessage, RequestListener, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What a sign-in asked for, by its code. */
interface Code {
  readonly challenge: string;
  readonly redirectUri: string;
  readonly clientId: string;
  readonly resource: string;
}

/**
 * An authorization server that rotates refresh tokens, takes a second use of one for theft and then honours nothing of the
 * grant any more, and can be slow, fail and lose its answers. It has a resource as well, `/mcp`, whose metadata name it.
 */
export class AuthServer implements AsyncDisposable {
  /** Each refresh token that was sent, in order. */
  readonly used: string[] = [];
  readonly resources: string[] = [];
  refreshToken = randomBytes(12).toString('hex');
  accessToken = randomBytes(12).toString('hex');
  /** It honours a refresh token until one that was issued for it is used, as servers do that expect answers to get lost. */
  isLenient = false;
  /** The grant is gone: a refresh token was used twice, or the server was told to forget it. */
  isRevoked = false;
  expiresIn = 3_600;
  /** How the next requests for tokens end, instead of well. */
  readonly next: ('lose the answer' | 'fail before' | 'busy')[] = [];
  /** Answers wait for it. */
  gate: Promise<void> = Promise.resolve();
  /** Answers at the resource; null: nothing is there. */
  resource: RequestListener | null = null;
  /** What a lenient server honours, and what each was issued for. */
  readonly #honoured = new Set<string>();
  readonly #issuedFor = new Map<string, string>();
  readonly #server: Server;
  readonly #codes = new Map<string, Code>();

  private constructor() {
    this.#server = createServer((request, response) => {
      if (this.resource !== null && request.url === '/mcp') {
        this.resource(request, response);
        return;
      }
      void this.#answer(request, response).catch(() => response.destroy());
    });
  }

  static async start(): Promise<AuthServer> {
    const made = new AuthServer();
    await new Promise<void>((resolve) => made.#server.listen(0, '127.0.0.1', resolve));
    return made;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  get tokenEndpoint(): string {
    return `${this.origin}/token`;
  }

  /** What a person does in the browser: consents, and is sent back with a code. */
  consent(url: string): { readonly code: string; readonly state: string } {
    const asked = new URL(url).searchParams;
    const code = randomBytes(12).toString('hex');
    this.#codes.set(code, {
      challenge: asked.get('code_challenge') ?? '',
      redirectUri: asked.get('redirect_uri') ?? '',
      clientId: asked.get('client_id') ?? '',
      resource: asked.get('resource') ?? '',
    });
    return { code, state: asked.get('state') ?? '' };
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { pathname } = new URL(request.url ?? '/', this.origin);
    const body = Buffer.concat(chunks).toString();
    if (pathname === '/.well-known/oauth-protected-resource/mcp') {
      json(response, 200, { resource: `${this.origin}/mcp`, authorization_servers: [this.origin] });
    } else if (pathname === '/.well-known/oauth-authorization-server') json(response, 200, this.#metadata());
    else if (pathname === '/register') json(response, 201, { ...Object(JSON.parse(body)), client_id: 'made-client' });
    else if (pathname === '/token') await this.#token(new URLSearchParams(body), response);
    else json(response, 404, {});
  }

  #metadata(): object {
    return {
      issuer: this.origin,
      authorization_endpoint: `${this.origin}/authorize`,
      token_endpoint: this.tokenEndpoint,
      registration_endpoint: `${this.origin}/register`,
      response_types_supported: ['code'],
      code_challenge_methods_supported: ['S256'],
      authorization_response_iss_parameter_supported: true,
    };
  }

  async #token(sent: URLSearchParams, response: ServerResponse): Promise<void> {
    const how = this.next.shift();
    if (how === 'busy') {
      json(response, 503, { error: 'temporarily_unavailable' });
      return;
    }
    if (how === 'fail before') {
      response.destroy();
      return;
    }
    this.resources.push(sent.get('resource') ?? '');
    const isGood = sent.get('grant_type') === 'refresh_token' ? this.#takesRefresh(sent) : this.#takesCode(sent);
    if (isGood) this.#issue(sent.get('refresh_token'));
    await this.gate;
    if (how === 'lose the answer') response.destroy();
    else if (!isGood) json(response, 400, { error: 'invalid_grant', error_description: '<b>planted</b>' });
    else {
      const { accessToken: access_token, refreshToken: refresh_token, expiresIn: expires_in } = this;
      json(response, 200, { token_type: 'Bearer', access_token, refresh_token, expires_in });
    }
  }

  #takesRefresh(sent: URLSearchParams): boolean {
    const token = sent.get('refresh_token') ?? '';
    this.used.push(token);
    if (token !== this.refreshToken && !(this.isLenient && this.#honoured.has(token))) this.isRevoked = true;
    return !this.isRevoked;
  }

  #issue(usedToken: string | null): void {
    this.refreshToken = randomBytes(12).toString('hex');
    this.accessToken = randomBytes(12).toString('hex');
    if (usedToken === null) return;
    this.#honoured.delete(this.#issuedFor.get(usedToken) ?? '');
    this.#honoured.add(usedToken).add(this.refreshToken);
    this.#issuedFor.set(this.refreshToken, usedToken);
  }

  #takesCode(sent: URLSearchParams): boolean {
    const code = this.#codes.get(sent.get('code') ?? '');
    this.#codes.delete(sent.get('code') ?? '');
    const challenge = createHash('sha256')
      .update(sent.get('code_verifier') ?? '')
      .digest('base64url');
    this.isRevoked = false;
    return (
      code?.challenge === challenge &&
      code.redirectUri === sent.get('redirect_uri') &&
      code.clientId === sent.get('client_id') &&
      code.resource === sent.get('resource')
    );
  }
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
