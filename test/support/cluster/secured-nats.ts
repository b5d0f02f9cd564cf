import { execFile } from 'node:child_process';
import { copyFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { jetstreamManager } from '@nats-io/jetstream';
import { closeNats, connectNats } from '#src/streams/jetstream/connection.ts';
import { freePort } from '../free-port.ts';
import { until } from '../wait-until.ts';
import { ClusterServer } from './nats-cluster.ts';

const NAMES = ['nats-0', 'nats-1', 'nats-2'];
const READY_MS = 60_000;
const BASE = 'deploy/kubernetes/base';

/**
 * The three NATS servers of deploy/, by their own configuration, permissions and secrets: all that is changed are
 * addresses and paths. What their logs say of refusals is there to be read.
 */
export class SecuredNats implements AsyncDisposable {
  readonly directory: string;
  readonly #servers: readonly ClusterServer[];

  private constructor(directory: string, servers: readonly ClusterServer[]) {
    this.directory = directory;
    this.#servers = servers;
  }

  static async start(): Promise<SecuredNats> {
    const directory = await mkdtemp(join(tmpdir(), 'agent-host-secured-'));
    await promisify(execFile)('sh', ['deploy/make-secrets.sh', join(directory, 'auth')]);
    await copyFile(join(directory, 'auth/nats-auth.conf'), join(directory, 'auth/auth.conf'));
    await copyFile(`${BASE}/nats-permissions.conf`, join(directory, 'nats-permissions.conf'));
    const routes = await Promise.all(NAMES.map(freePort));
    const servers = await Promise.all(NAMES.map(async (name) => new ClusterServer(name, await freePort(), directory)));
    const nats = new SecuredNats(directory, servers);
    try {
      const text = await readFile(`${BASE}/nats.conf`, 'utf8');
      for (const [n, server] of servers.entries()) {
        await writeFile(server.configFile, await placed(text, { directory, server, routes, n }));
      }
      await Promise.all(servers.map(async (server) => await server.start()));
      await until('the NATS servers have agreed on who leads', async () => await nats.#answers(), READY_MS);
    } catch (error) {
      await nats[Symbol.asyncDispose]();
      throw error;
    }
    return nats;
  }

  async #answers(): Promise<boolean> {
    try {
      const connections = await connectNats(await this.urlOf('operator'), 'test', { caFile: this.caFile });
      try {
        await jetstreamManager(connections.appends);
        return true;
      } finally {
        await closeNats(connections);
      }
    } catch {
      return false;
    }
  }

  /** A secret that the script made. */
  async secret(name: string): Promise<string> {
    return (await readFile(join(this.directory, 'auth', name), 'utf8')).trim();
  }

  get caFile(): string {
    return join(this.directory, 'auth/ca.crt');
  }

  /** What containers of this user are given, but for the addresses. */
  async urlOf(user: string): Promise<string> {
    const url = new URL(((await this.secret(`nats-url-${user}`)).split(',')[0] ?? '').replace('tls:', 'http:'));
    return this.#servers.map(({ port }) => `tls://${url.username}:${url.password}@localhost:${port}`).join(',');
  }

  /** What the servers have refused so far, a line each. */
  async violations(): Promise<string[]> {
    const logs = await Promise.all(this.#servers.map(async ({ logFile }) => await readFile(logFile, 'utf8')));
    return logs.flatMap((text) => text.split('\n').filter((line) => / Violation - /.test(line)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#servers.map(async (server) => await server.stop()));
    await rm(this.directory, { recursive: true, force: true });
  }
}

async function placed(
  text: string,
  { directory, server, routes, n }: { directory: string; server: ClusterServer; routes: readonly number[]; n: number },
): Promise<string> {
  let config = text
    .replace('$NATS_NAME', server.name)
    .replace('0.0.0.0:4222', `127.0.0.1:${server.port}`)
    .replace('0.0.0.0:8222', `127.0.0.1:${await freePort()}`)
    .replace('0.0.0.0:6222', `127.0.0.1:${routes[n] ?? 0}`)
    .replace('"/data"', JSON.stringify(server.storeDirectory))
    .replaceAll('/etc/nats', directory);
  for (const [other, name] of NAMES.entries())
    config = config.replace(`${name}.nats:6222`, `localhost:${routes[other] ?? 0}`);
  return config;
}
