import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { spawnGuarded } from '#src/embedded/guarded-process.ts';
import type { GuardedProcess } from '#src/embedded/guarded-process.ts';
import { openLog } from '#src/embedded/log-file.ts';
import { findNatsServer } from '#src/embedded/nats-server.ts';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { freePort } from './free-port.ts';
import { greets } from './greets.ts';
import { until } from './wait-until.ts';

/** A nats-server that drops a connection as soon as 4 MiB wait for it: the least that a Host takes. */
export class StrictNats implements AsyncDisposable {
  readonly port: number;
  readonly #directory: string;
  readonly #process: GuardedProcess;

  private constructor(port: number, directory: string, server: GuardedProcess) {
    this.port = port;
    this.#directory = directory;
    this.#process = server;
  }

  static async start(): Promise<StrictNats> {
    const directory = await mkdtemp(join(tmpdir(), 'agent-host-nats-'));
    const port = await freePort();
    const config = join(directory, 'nats.conf');
    await writeFile(config, configuration(port, directory));
    const binary = await findNatsServer({ report: () => undefined });
    const log = await openLog(join(directory, 'nats.log'));
    try {
      const server = await spawnGuarded({
        command: binary.path,
        args: ['-c', config],
        pidFile: join(directory, 'nats.pid'),
        logFd: log.fd,
        env: bareEnvironment(),
        cwd: directory,
        signal: 'SIGTERM',
        insist: 'SIGTERM',
      });
      await until('the server greets', async () => await greets(port));
      return new StrictNats(port, directory, server);
    } finally {
      await log.close();
    }
  }

  get url(): string {
    return `nats://127.0.0.1:${this.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#process.stop();
    await rm(this.#directory, { recursive: true, force: true });
  }
}

function configuration(port: number, directory: string): string {
  return `server_name: strict
listen: "127.0.0.1:${port}"
max_payload: 4MB
max_pending: 4MB
jetstream {
  store_dir: ${JSON.stringify(join(directory, 'jetstream'))}
}
`;
}
