import type { McpDriver } from '../drivers/mcp/port.ts';
import { egressClient } from '../lib/egress-client.ts';
import { openUrlCredentials } from './url-credentials.ts';
import type { UrlCredentialsOptions } from './url-credentials.ts';

const CONNECT_MS = 5_000;
/** A tool may say nothing for as long as its call may take; the call's deadline ends it. */
const SILENCE_MS = 3_600_000;

/** The driver for MCP servers, with the credentials of vaults. The protocol's library is loaded for the first server. */
export function mcpDriver(options: UrlCredentialsOptions): McpDriver {
  const { egress, clock, stack } = options;
  const credentials = openUrlCredentials(options);
  const http = egressClient({ policy: egress, connectMs: CONNECT_MS, silenceMs: SILENCE_MS });
  stack.defer('MCP servers', http.close);
  let loaded: Promise<McpDriver> | undefined;
  const load = async (): Promise<McpDriver> => {
    const { openMcpDriver } = await import('../drivers/mcp/driver.ts');
    return openMcpDriver({ http, credentials, clock });
  };
  const driver: McpDriver = {
    list: async (...args) => await (await (loaded ??= load())).list(...args),
    call: async (...args) => await (await (loaded ??= load())).call(...args),
    stop: async () => await (await loaded)?.stop(),
  };
  stack.defer('MCP calls', async () => await driver.stop());
  return driver;
}
