import { createServer } from 'node:net';

/** Below the ports that systems give to outgoing connections: one of those could take it while its server is away. */
const FIRST = 20_000;
const LAST = 32_000;
const TRIES = 100;
const given = new Set<number>();

/** A port of loopback that is free now, for a server that has to come back on the same one. */
export async function freePort(): Promise<number> {
  for (let tries = 0; tries < TRIES; tries++) {
    const port = FIRST + Math.floor(Math.random() * (LAST - FIRST));
    if (given.has(port)) continue;
    given.add(port);
    if (await canListen(port)) return port;
  }
  throw new Error(`no free port from ${FIRST} to ${LAST}`);
}

async function canListen(port: number): Promise<boolean> {
  const server = createServer();
  return await new Promise<boolean>((resolve) => {
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
}
