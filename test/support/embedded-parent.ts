/**
 * A stand-in for the Host that a test kills: takes the data directory given as the only argument, starts both servers
 * in it, writes one JSON line with their pids and addresses to its output, and goes on until it is killed.
 */
import { openDataDir } from '../../src/embedded/data-dir.ts';
import { findNatsServer, startNatsServer } from '../../src/embedded/nats-server.ts';
import { startPostgres } from '../../src/embedded/postgres.ts';

const report = (): void => undefined;
const dataDir = await openDataDir(process.argv[2] ?? '');
const [nats, postgres] = await Promise.all([
  findNatsServer({ report }).then((binary) => startNatsServer({ binary, directory: dataDir.path, report })),
  startPostgres({ directory: dataDir.path, report }),
]);
process.stdout.write(
  `${JSON.stringify({ nats: nats.pid, natsUrl: nats.url, postgres: postgres.pid, postgresUrl: postgres.url })}\n`,
);
