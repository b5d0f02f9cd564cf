import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client } from 'pg';
import { startPostgres } from '#src/embedded/postgres.ts';
import type { EmbeddedServer } from '#src/embedded/nats-server.ts';

const CONNECT_MS = 2_000;

/** The Postgres of an installation. After a restart it may be on another port; the links to it follow. */
export class ClusterPostgres implements AsyncDisposable {
  readonly #directory: string;
  #server: EmbeddedServer;

  private constructor(directory: string, server: EmbeddedServer) {
    this.#directory = directory;
    this.#server = server;
  }

  static async start(): Promise<ClusterPostgres> {
    const directory = await mkdtemp(join(tmpdir(), 'agent-host-postgres-'));
    return new ClusterPostgres(directory, await run(directory));
  }

  get port(): number {
    return Number(new URL(this.#server.url).port);
  }

  /** With user and password in it: the server itself, or through another port. */
  urlThrough(port = this.port): string {
    const url = new URL(this.#server.url);
    url.port = String(port);
    return url.href;
  }

  /** SIGKILL to the first of its processes; the others end when they see it. */
  async kill(): Promise<void> {
    process.kill(this.#server.pid, 'SIGKILL');
    await this.#server.exited;
  }

  /** After `kill`: on the same directory again. */
  async restart(): Promise<void> {
    await this.#server.stop();
    this.#server = await run(this.#directory);
  }

  async dropDatabase(): Promise<void> {
    const url = new URL(this.#server.url);
    const name = url.pathname.slice(1);
    url.pathname = '/postgres';
    await this.query(`drop database ${name} with (force)`, url.href);
  }

  async query(text: string, url = this.#server.url): Promise<unknown[]> {
    const client = new Client({ connectionString: url, connectionTimeoutMillis: CONNECT_MS });
    client.on('error', () => undefined);
    await client.connect();
    try {
      return (await client.query<Record<string, unknown>>(text)).rows;
    } finally {
      await client.end();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.stop();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

async function run(directory: string): Promise<EmbeddedServer> {
  return await startPostgres({ directory, report: () => undefined });
}
