import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findNatsServer, startNatsServer } from '#src/embedded/nats-server.ts';
import type { EmbeddedServer } from '#src/embedded/nats-server.ts';
import { until } from './wait-until.ts';

const report = (): void => undefined;

/** A nats-server of its own for one test file, with its data in a temporary directory. */
export class TestNats implements AsyncDisposable {
  readonly directory: string;
  #server: EmbeddedServer;

  private constructor(directory: string, server: EmbeddedServer) {
    this.directory = directory;
    this.#server = server;
  }

  static async start(): Promise<TestNats> {
    const directory = await mkdtemp(join(tmpdir(), 'agent-host-nats-'));
    return new TestNats(directory, await run(directory));
  }

  /** With user and password in it. The same over restarts. */
  get url(): string {
    return this.#server.url;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  /** The same server, but through another port: a proxy's. */
  urlThrough(port: number): string {
    const url = new URL(this.url);
    url.port = String(port);
    return url.href;
  }

  /** As if the machine's power switch had been used on the process: no flush, no goodbye. */
  async kill(): Promise<void> {
    process.kill(this.#server.pid, 'SIGKILL');
    await this.#server.exited;
  }

  /** SIGSTOP: it keeps its connections and answers nobody, until `resume`. */
  pause(): void {
    process.kill(this.#server.pid, 'SIGSTOP');
  }

  resume(): void {
    process.kill(this.#server.pid, 'SIGCONT');
  }

  /** From now on its user may not publish to these, like one whose permissions are those of an older version. */
  async forbid(subjects: string): Promise<void> {
    const path = join(this.directory, 'nats-server.conf');
    const config = await readFile(path, 'utf8');
    const permissions = `permissions: { publish: { deny: [${JSON.stringify(subjects)}] } }`;
    const forbidding = config.replace(
      /^authorization \{ (.+) \}$/m,
      `authorization { users: [{ $1, ${permissions} }] }`,
    );
    await writeFile(path, forbidding);
    process.kill(this.#server.pid, 'SIGHUP');
    await until('it has read its configuration again', async () => {
      const log = await readFile(join(this.directory, 'nats-server.log'), 'utf8');
      return log.includes('Reloaded: authorization users');
    });
  }

  async stop(): Promise<void> {
    await this.#server.stop();
  }

  /** Starts it again after `kill` or `stop`, on the same directory and port. */
  async restart(): Promise<void> {
    const { port } = this;
    await this.#server.stop();
    this.#server = await run(this.directory, port);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#server.stop();
    await rm(this.directory, { recursive: true, force: true });
  }
}

async function run(directory: string, port?: number): Promise<EmbeddedServer> {
  const binary = await findNatsServer({ report });
  return await startNatsServer({ binary, directory, report, ...(port === undefined ? {} : { port }) });
}
