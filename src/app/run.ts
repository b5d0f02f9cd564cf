import closeWithGrace from 'close-with-grace';
import { delay } from '../lib/backoff.ts';
import { armFaultPoints } from '../lib/fault-points.ts';
import { createLogger } from '../lib/logger.ts';
import type { Config } from './config.ts';
import { startServers } from './embedded.ts';
import { openDataDir } from './embedded/data-dir.ts';
import { startHost } from './host.ts';
import { hostKey } from './host-key.ts';
import { Stack } from './stack.ts';

/** Past it, and the time of the drain, a graceful stop is given up, ms: the engine hands over within 10 s, the servers end after it. */
const STOP_MS = 25_000;
const FAILED_STOP_MS = 3_000;

/** Runs the Host until it is told to stop. Returns the exit code. */
export async function runHost(config: Config): Promise<number> {
  const begun = performance.now();
  const report = (line: string): void => void process.stdout.write(`${line}\n`);
  const logger = createLogger({ level: config.logLevel, pretty: process.stdout.isTTY });
  const stack = new Stack();
  const onError = (name: string, error: unknown): void =>
    logger.error({ err: error, part: name }, 'a part did not stop cleanly');
  if (config.faultPoints !== undefined) armFaultPoints(config.faultPoints);
  try {
    const dataDir = await openDataDir(config.dataDir);
    stack.defer('data directory', async () => await dataDir.release());
    const servers = await startServers(config, dataDir, report);
    stack.defer('servers', servers.stop);
    const kek = await hostKey(config, async () => await dataDir.kek());
    const adminKey = config.adminKey ?? (await dataDir.adminKey());
    const { natsUrl, databaseUrl } = servers;
    const asked = Promise.withResolvers<string>();
    const shutDown = (): void => asked.resolve('asked by the Admin API');
    const host = await startHost({
      shutDown,
      config,
      natsUrl,
      databaseUrl,
      adminKey,
      hostKey: kek,
      nodeId: dataDir.nodeId,
      dataDir: dataDir.path,
      logger,
    });
    stack.defer('host', host.stop);
    await dataDir.publish('listen', host.address);
    stack.defer('listen file', async () => await dataDir.withdraw('listen'));
    report(welcome(config, { ...host, dataDir: dataDir.path, seconds: (performance.now() - begun) / 1000 }));
    const reason = await Promise.race([stopRequested(config), asked.promise, servers.failed]);
    report(`Stopping (${reason}): handing turns over, ending streams …`);
    await stack.unwind(onError);
    report('Stopped.');
    return 0;
  } catch (error) {
    // What failed may be what the parts need to say goodbye: they get a moment, not the time of a graceful stop.
    await Promise.race([stack.unwind(onError), delay(FAILED_STOP_MS)]);
    throw error;
  }
}

/** Resolves at SIGTERM or SIGINT; a second signal, an uncaught error or a stop that hangs ends the process. */
async function stopRequested({ drainMs }: Config): Promise<string> {
  return await new Promise<string>((resolve) => {
    closeWithGrace({ delay: STOP_MS + drainMs, logger: false }, async ({ signal, err }) => {
      if (err !== undefined) throw err;
      resolve(signal ?? 'asked to');
      // The caller unwinds and exits; until then this keeps the library from exiting first.
      await new Promise(() => undefined);
    });
  });
}

function welcome(
  config: Config,
  at: { address: string; metricsAddress: string; dataDir: string; seconds: number },
): string {
  const key = config.adminKey === undefined ? `$(cat '${at.dataDir}/admin-key')` : '$AGENT_HOST_ADMIN_KEY';
  const lines = [
    '',
    `Ready in ${at.seconds.toFixed(1)} s.`,
    `  Listening  http://${at.address}`,
    `  Admin key  ${config.adminKey === undefined ? `${at.dataDir}/admin-key` : 'from AGENT_HOST_ADMIN_KEY'}`,
    `  Metrics    http://${at.metricsAddress}/metrics`,
    ...(config.fixtureModel
      ? ['  Models     fixture (plays scripts and echoes; no provider, no cost)']
      : ['  Models     none; AGENT_HOST_FIXTURE_MODEL=1 turns the fixture model on']),
    '',
    'Try it in another terminal:',
    '',
    `curl -s -X POST http://${at.address}/v1/admin/tenants \\`,
    `  -H "Authorization: Bearer ${key}" -H 'Svc-Protocol: 8' -H 'Content-Type: application/json' \\`,
    `  -d '{"name":"My first tenant"}'`,
    '',
  ];
  return lines.join('\n');
}
