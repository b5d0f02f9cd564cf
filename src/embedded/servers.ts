import { join } from 'node:path';
import type { Logger } from '../lib/logger.ts';
import type { DataDir } from './data-dir.ts';
import { SupervisedServer } from './supervised-server.ts';
import type { StartAgain } from './supervised-server.ts';
import { findNatsServer, startNatsServer } from './nats-server.ts';
import type { EmbeddedServer } from './nats-server.ts';
import { startPostgres } from './postgres.ts';

/** The addresses of the log and the read store, and the servers that run as our children, if any. */
export interface Servers {
  readonly natsUrl: string;
  readonly databaseUrl: string;
  readonly embedded: EmbeddedServers;
  readonly stop: () => Promise<void>;
}

/** Absent: the configuration has its address, and others run the server. */
export interface EmbeddedServers {
  readonly nats: Kept | undefined;
  readonly postgres: Kept | undefined;
}
type Kept = Pick<SupervisedServer, 'isRunning' | 'restarts' | 'onChange'>;

/** Which of the two have ended by themselves and are being started again. */
export interface ServersDown {
  readonly nats: boolean;
  readonly postgres: boolean;
}

export const NO_SERVERS: EmbeddedServers = { nats: undefined, postgres: undefined };

export function serversDown({ nats, postgres }: EmbeddedServers): ServersDown {
  return { nats: nats?.isRunning === false, postgres: postgres?.isRunning === false };
}

/** What is in place already; an absent address means a server to start. */
export interface Places {
  readonly natsUrl?: string | undefined;
  readonly databaseUrl?: string | undefined;
  /** Says where binaries are found. */
  readonly environment: Readonly<Record<string, string | undefined>>;
}

export interface ServersOptions {
  readonly config: Places;
  readonly dataDir: DataDir;
  readonly report: (line: string) => void;
  readonly logger: Logger;
  /** Called when each of them runs, and is not ready yet: at once where none is to be started. */
  readonly onSpawned?: () => void;
}

/** Starts each server without an address in the configuration, both at once, and restarts it when it ends. */
export async function startServers(options: ServersOptions): Promise<Servers> {
  const { config, dataDir, report, logger } = options;
  const natsAt = async (place: Place = {}) => await startNats(config, dataDir, report, place);
  const postgresAt = async (place: Place = {}) =>
    await startPostgres({ directory: join(dataDir.path, 'postgres'), report, ...place });
  const awaited = new Set<unknown>();
  const spawned = (start: (place: Place) => Promise<EmbeddedServer>): Promise<EmbeddedServer> => {
    awaited.add(start);
    const onSpawned = (): void => {
      if (awaited.delete(start) && awaited.size === 0) options.onSpawned?.();
    };
    return start({ onSpawned });
  };
  const starts = [
    config.natsUrl === undefined ? spawned(natsAt) : undefined,
    config.databaseUrl === undefined ? spawned(postgresAt) : undefined,
  ] as const;
  if (awaited.size === 0) options.onSpawned?.();
  const [nats, postgres] = await settleAll(starts);
  const kept = (
    name: string,
    server: EmbeddedServer | undefined,
    startAgain: StartAgain,
  ): SupervisedServer | undefined =>
    server === undefined ? undefined : new SupervisedServer({ name, server, startAgain, logger });
  const embedded = {
    nats: kept('nats-server', nats, natsAt),
    postgres: kept('postgres', postgres, postgresAt),
  };
  const natsUrl = config.natsUrl ?? nats?.url ?? '';
  const databaseUrl = config.databaseUrl ?? postgres?.url ?? '';
  if (nats !== undefined) dataDir.publish('nats-url', natsUrl);
  if (postgres !== undefined) dataDir.publish('database-url', databaseUrl);
  return {
    natsUrl,
    databaseUrl,
    embedded,
    stop: async () => {
      await embedded.postgres?.stop();
      await embedded.nats?.stop();
      if (nats !== undefined) await dataDir.withdraw('nats-url');
      if (postgres !== undefined) await dataDir.withdraw('database-url');
    },
  };
}

/** Where a server is restarted, what ends such a start, and what is called once a process of it runs. */
type Place = Partial<Parameters<StartAgain>[0]> & { readonly onSpawned?: () => void };

/** The embedded nats-server alone. */
export async function startNats(
  config: Pick<Places, 'environment'>,
  dataDir: DataDir,
  report: (line: string) => void,
  place: Place = {},
): Promise<EmbeddedServer> {
  const binary = await findNatsServer({ report, env: config.environment });
  return await startNatsServer({ binary, directory: join(dataDir.path, 'nats'), report, ...place });
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
