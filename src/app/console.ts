import { dirname, join } from 'node:path';
import { openDoor } from '../console/server/door.ts';
import type { Door } from '../console/server/door.ts';
import { hasCode } from '../lib/files.ts';
import type { Stack } from '../lib/stack.ts';
import type { ConsoleConfig } from './console-config.ts';
import { listening } from './listening.ts';

export interface ConsoleOptions {
  readonly config: ConsoleConfig;
  /** Where this Host listens, `host:port`; null: another one is shown. */
  readonly address: string | null;
  readonly adminKey: string;
  /** The program; the build of the pages is beside it. */
  readonly program: string;
}

/** Opens the listener for browsers, which is stopped with the rest. @throws StartError */
export async function openConsole(options: ConsoleOptions, stack: Stack): Promise<Door> {
  const { config, address, adminKey, program } = options;
  const { host, port } = config.listen;
  const url = config.host ?? urlOf(address ?? '');
  const directory = join(dirname(program), 'console');
  const open = async (at: number): Promise<Door> =>
    await openDoor({ url, authority: { kind: 'host', adminKey }, directory, host, port: at });
  const door = await listening(port, 'AGENT_HOST_CONSOLE_LISTEN', async () => {
    try {
      return await open(port);
    } catch (error) {
      // A second Host on this machine is no reason not to start.
      if (config.isAsked || !hasCode(error, 'EADDRINUSE')) throw error;
      return await open(0);
    }
  });
  stack.defer('console', door.close);
  return door;
}

/** How this machine reaches a listener. */
function urlOf(address: string): string {
  const url = new URL(`http://${address}`);
  if (url.hostname === '0.0.0.0') url.hostname = '127.0.0.1';
  if (url.hostname === '[::]') url.hostname = '[::1]';
  return url.origin;
}
