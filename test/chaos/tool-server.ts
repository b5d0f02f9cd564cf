import { randomUUID } from 'node:crypto';
import { delay } from '#src/lib/backoff.ts';
import { AuthServer } from '../support/auth-server.ts';
import { ScriptedServer } from '../support/mcp-servers.ts';
import type { Random } from '../support/random.ts';
import type { Execution } from './tool-checks.ts';

/** Before this much of its time is left a token is refreshed: this is how long one of them is used. */
const TOKEN_SECONDS = 34;
const SLOW_MS = 2_000;

/** The name of the server in manifests. */
export const TOOL_SERVER = 'outside';

const TOOLS = [
  { name: 'act', inputSchema: { type: 'object' } },
  { name: 'look', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } },
];

export const READ_ONLY_TOOLS: ReadonlySet<string> = new Set(['look']);

/** Calls of its tools, as a model that plays a script makes them. Each is known by its mark. */
export function toolCalls(random: Random): readonly object[] {
  return Array.from({ length: random.int(1, 2) }, () => {
    const name = random.int(0, 2) === 0 ? 'look' : 'act';
    return { name: `${TOOL_SERVER}_${name}`, input: { mark: randomUUID() } };
  });
}

/**
 * An MCP server and its authorization server, outside the installation, which nothing of the chaos touches. It writes down
 * what it carries out; tokens are short-lived, and only the newest is good. It honours a refresh token until one that was
 * issued for it is used, as servers do that know that answers get lost: so no crash loses the grant.
 */
export class ToolServer implements AsyncDisposable {
  readonly executions: Execution[] = [];
  readonly auth: AuthServer;
  readonly #server: ScriptedServer;
  readonly #random: Random;

  private constructor(auth: AuthServer, server: ScriptedServer, random: Random) {
    [this.auth, this.#server, this.#random] = [auth, server, random];
    auth.isLenient = true;
    auth.expiresIn = TOKEN_SECONDS;
    auth.resource = (request, response) => {
      // A call that was cut off while it came in was not carried out.
      request.on('error', () => undefined);
      if (request.headers.authorization === `Bearer ${auth.accessToken}`) server.handle(request, response);
      else response.writeHead(401, { 'www-authenticate': 'Bearer' }).end();
    };
    server.tools = TOOLS;
    server.script = async ({ params }, _request, response) => {
      const { name, arguments: input } = params;
      const id = this.executions.length + 1;
      this.executions.push({ id, tool: String(name), mark: String(Reflect.get(Object(input), 'mark')) });
      const dice = this.#random.int(1, 20);
      await delay(this.#random.int(0, dice === 20 ? SLOW_MS : 200));
      if (dice > 1) return { content: [{ type: 'text', text: String(id) }] };
      response.destroy();
      return null;
    };
  }

  static async start(random: Random): Promise<ToolServer> {
    const [auth, server] = await Promise.all([AuthServer.start(), ScriptedServer.start()]);
    return new ToolServer(auth, server, random);
  }

  get url(): string {
    return `${this.auth.origin}/mcp`;
  }

  /** The tokens that a person has got, as a credential of a vault. */
  get credential(): object {
    const { accessToken, refreshToken, tokenEndpoint } = this.auth;
    const expiresAt = new Date(Date.now() + TOKEN_SECONDS * 1_000).toISOString();
    return {
      type: 'oauth',
      url: this.url,
      accessToken,
      expiresAt,
      refresh: { tokenEndpoint, clientId: 'c', refreshToken },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.auth[Symbol.asyncDispose]();
    await this.#server[Symbol.asyncDispose]();
  }
}
