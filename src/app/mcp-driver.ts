import { openMcpDriver } from '../drivers/mcp/driver.ts';
import type { McpDriver } from '../drivers/mcp/port.ts';
import { egressClient } from '../lib/egress-client.ts';
import { openUrlCredentials } from './url-credentials.ts';
import type { UrlCredentialsOptions } from './url-credentials.ts';

const CONNECT_MS = 5_000;
/** A tool may say nothing for as long as its call may take; the call's deadline ends it. */
const SILENCE_MS = 3_600_000;

/** The driver for MCP servers, with the credentials of vaults. */
export function mcpDriver(options: UrlCredentialsOptions): McpDriver {
  const { egress, clock, stack } = options;
  const credentials = openUrlCredentials(options);
  const http = egressClient({ policy: egress, connectMs: CONNECT_MS, silenceMs: SILENCE_MS });
  stack.defer('MCP servers', http.close);
  const driver = openMcpDriver({ http, credentials, clock });
  stack.defer('MCP calls', async () => await driver.stop());
  return driver;
}
