import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { delay } from '#src/lib/backoff.ts';
import { AdminClient } from '../support/client.ts';
import { freePort } from '../support/free-port.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { checkHistory, SessionClient } from '../support/load.ts';
import { seededRandom } from '../support/random.ts';
import type { Random } from '../support/random.ts';
import { until } from '../support/wait-until.ts';

const KILLS = 15;
const SESSIONS = 8;

/** Points at which the process kills itself, so that every order of "stored" and "acted on" is met, not only likely ones. */
const POINTS = [
  'append.acknowledged',
  'command.appended',
  'model.called',
  'model.answered',
  'model.recorded',
  'projection.applied',
  'dispatcher.checkpointed',
];

async function crash(host: Host, random: Random): Promise<string> {
  const kind = random.int(0, 9);
  if (kind <= 5) {
    await delay(random.int(1, 400));
    await host.kill();
    return 'SIGKILL';
  }
  if (kind <= 8) {
    // The Host was started with a fault point armed; it kills itself there under the load.
    const armed = await until('the armed fault point is reached', () => !isRunning(host), 5_000).catch(() => null);
    if (armed === null) await host.kill();
    return armed === null ? 'SIGKILL' : 'fault point';
  }
  await delay(random.int(1, 400));
  const server = await natsPid(host);
  process.kill(server, 'SIGKILL');
  // The Host starts it again, unless it meets the armed fault point on the way; work goes on for a moment before the crash.
  await until('the log is back', async () => !isRunning(host) || (await natsPid(host)) !== server);
  await delay(random.int(1, 2_000));
  await host.kill();
  return 'SIGKILL to nats-server, then to the Host';
}

/** Of the server that runs, or ran last; 0 while there is none. */
async function natsPid(host: Host): Promise<number> {
  return Number(await readFile(join(host.dataDir, 'nats', 'nats-server.pid'), 'utf8').catch(() => '0'));
}

/** The armed point may be reached while the Host still starts: that is one more crash, and the next start is unarmed. */
async function restart(host: Host, armed: string): Promise<void> {
  const failure = await host.restart({ AGENT_HOST_FAULT_POINTS: armed }).then(
    () => 'it ended with SIGKILL',
    (error: unknown) => String(error),
  );
  expect(failure).toContain('it ended with SIGKILL');
  if (!isRunning(host)) await host.restart({ AGENT_HOST_FAULT_POINTS: '' });
}

test(
  `${KILLS} crashes at random instants under load: nothing lost, nothing doubled, every turn ends`,
  { timeout: 1_200_000 },
  async () => {
    const random = seededRandom('crashes');
    // The Host must come back on the same port, as behind a service address.
    const listen = `127.0.0.1:${await freePort()}`;
    await using host = await startHost({ env: { AGENT_HOST_LISTEN: listen } });
    const tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent();
    const clients = Array.from({ length: SESSIONS }, (_, i) => new SessionClient(tenant, `crash/${i}`, random));
    for (const client of clients) await tenant.openSession(client.sessionId);
    for (const client of clients) client.start();

    const kinds: Record<string, number> = {};
    for (let kill = 0; kill < KILLS; kill++) {
      const kind = await crash(host, random);
      kinds[kind] = (kinds[kind] ?? 0) + 1;
      const point = POINTS[random.int(0, POINTS.length - 1)] ?? '';
      const armed = `${point}=kill@${random.int(1, 25)}`;
      await restart(host, armed);
    }
    await host.kill();
    await host.restart({ AGENT_HOST_FAULT_POINTS: '' });
    for (const client of clients) await client.stopSending();

    const sent = clients.reduce((sum, client) => sum + client.accepted.length, 0);
    process.stdout.write(`crashes: ${JSON.stringify(kinds)}, ${sent} messages accepted\n`);
    expect(sent).toBeGreaterThan(KILLS);
    for (const client of clients) checkHistory(client, await client.settle());
    for (const client of clients) {
      expect(await tenant.session(client.sessionId)).toMatchObject({ status: 'idle', activeTurnId: null });
    }
  },
);
