import { openMcpDriver } from '#src/drivers/mcp/driver.ts';
import type { CredentialSource } from '#src/drivers/mcp/credentials.ts';
import type { McpCall, McpCallOptions, McpDriver, McpListing, McpOutcome, McpServer } from '#src/drivers/mcp/port.ts';
import { systemClock } from '#src/lib/clock.ts';
import { egressClient } from '#src/lib/egress-client.ts';
import { egressPolicy } from '#src/lib/egress.ts';
import { newId } from '#src/lib/ids.ts';

/** Long enough for any machine: no test waits for it. */
const AMPLE_MS = 60_000;

const NO_CREDENTIALS: CredentialSource = { forUrl: async () => await Promise.resolve({ kind: 'none' }) };

export interface TestMcpOptions {
  readonly credentials?: CredentialSource;
  readonly egress?: string;
}

/** A node's driver as a test uses it. */
export class TestMcp implements AsyncDisposable {
  readonly driver: McpDriver;
  readonly #close: () => Promise<void>;

  constructor({ credentials = NO_CREDENTIALS, egress = 'loopback' }: TestMcpOptions = {}) {
    const http = egressClient({ policy: egressPolicy(egress), connectMs: 20_000, silenceMs: AMPLE_MS });
    this.driver = openMcpDriver({ http, credentials, clock: systemClock });
    this.#close = async () => {
      await this.driver.stop();
      await http.close();
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#close();
  }

  async list(server: McpServer): Promise<McpListing> {
    return await listOn(this.driver, server);
  }

  async call(server: McpServer, call: SomeCall, options: Partial<McpCallOptions> = {}): Promise<McpOutcome> {
    return await callOn(this.driver, server, call, options);
  }
}

type SomeCall = Partial<McpCall> & Pick<McpCall, 'tool'>;

export async function listOn(driver: McpDriver, server: McpServer): Promise<McpListing> {
  return await driver.list(server, { signal: new AbortController().signal, deadline: Date.now() + AMPLE_MS });
}

export async function callOn(
  driver: McpDriver,
  server: McpServer,
  call: SomeCall,
  options: Partial<McpCallOptions> = {},
): Promise<McpOutcome> {
  return await driver.call(
    server,
    { input: {}, effectId: newId('ev'), deadline: Date.now() + AMPLE_MS, digest: null, ...call },
    { signal: new AbortController().signal, ...options },
  );
}

/** A server as a session of its own sees it. */
export function serverAt(url: string, given: Partial<McpServer> = {}): McpServer {
  const nobody = { tenant: 'tn_1', sessionId: newId('se'), turnId: 'tu_1', vaultIds: ['va_1'] };
  return { ...nobody, name: 'srv', url, headers: {}, only: null, ...given };
}

/** The text of a result. */
export function textOf(outcome: McpOutcome): string {
  if (outcome.kind !== 'result') return JSON.stringify(outcome);
  return outcome.content.map((part) => (part.type === 'text' ? part.text : `[${part.type}]`)).join('\n');
}
