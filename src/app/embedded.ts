import { join } from 'node:path';
import type { Config } from './config.ts';
import type { DataDir } from './embedded/data-dir.ts';
import { findNatsServer, startNatsServer } from './embedded/nats-server.ts';
import type { EmbeddedServer } from './embedded/nats-server.ts';
import { startPostgres } from './embedded/postgres.ts';
import { StartError } from './start-error.ts';

/** The addresses of the log and the read store, and the servers that run as our children, if any. */
export interface Servers {
  readonly natsUrl: string;
  readonly databaseUrl: string;
  /** Rejects when a child ends while it is needed. */
  readonly failed: Promise<never>;
  readonly stop: () => Promise<void>;
}

/** Starts what the configuration does not name an address for, the two at the same time. */
export async function startServers(config: Config, dataDir: DataDir, report: (line: string) => void): Promise<Servers> {
  const [nats, postgres] = await settleAll([
    config.natsUrl === undefined ? startNats(config, dataDir, report) : undefined,
    config.databaseUrl === undefined ? startPostgres({ directory: join(dataDir.path, 'postgres'), report }) : undefined,
  ]);
  const natsUrl = config.natsUrl ?? nats?.url ?? '';
  const databaseUrl = config.databaseUrl ?? postgres?.url ?? '';
  if (nats !== undefined) await dataDir.publish('nats-url', natsUrl);
  if (postgres !== undefined) await dataDir.publish('database-url', databaseUrl);
  let stopping = false;
  const failed = new Promise<never>((_, reject) => {
    for (const [name, server] of [
      ['nats-server', nats],
      ['postgres', postgres],
    ] as const) {
      void server?.exited.then(({ code, signal }) => {
        if (!stopping)
          reject(
            new StartError(
              `the embedded ${name} ended unexpectedly (${signal ?? code}); see its log in ${dataDir.path} and start the Host again`,
            ),
          );
      });
    }
  });
  failed.catch(() => undefined);
  return {
    natsUrl,
    databaseUrl,
    failed,
    stop: async () => {
      stopping = true;
      await postgres?.stop();
      await nats?.stop();
      if (nats !== undefined) await dataDir.withdraw('nats-url');
      if (postgres !== undefined) await dataDir.withdraw('database-url');
    },
  };
}

/** The embedded nats-server alone. */
export async function startNats(
  config: Pick<Config, 'environment'>,
  dataDir: DataDir,
  report: (line: string) => void,
): Promise<EmbeddedServer> {
  const binary = await findNatsServer({ report, env: config.environment });
  return await startNatsServer({ binary, directory: join(dataDir.path, 'nats'), report });
}

/** If one server cannot be started, the other must not be left running. */
async function settleAll(
  starts: readonly [Promise<EmbeddedServer> | undefined, Promise<EmbeddedServer> | undefined],
): Promise<[EmbeddedServer | undefined, EmbeddedServer | undefined]> {
  const [nats, postgres] = await Promise.allSettled([Promise.resolve(starts[0]), Promise.resolve(starts[1])]);
  const failure = [nats, postgres].find((result) => result.status === 'rejected');
  if (failure === undefined) return [valueOf(nats), valueOf(postgres)];
  await valueOf(nats)?.stop();
  await valueOf(postgres)?.stop();
  throw failure.reason;
}

function valueOf<T>(result: PromiseSettledResult<T | undefined>): T | undefined {
  return result.status === 'fulfilled' ? result.value : undefined;
}
