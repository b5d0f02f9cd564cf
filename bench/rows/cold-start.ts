import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { waitUntil } from '#src/embedded/wait-until.ts';
import { ms, Sample } from '../figures.ts';
import { Filler } from '../fill.ts';
import type { Row } from '../row.ts';
import { names, Tenant } from '../tenant.ts';
import { Lines, request } from '../wire.ts';

const SESSIONS = 2_000;
const TURNS_EACH = 3;
const STARTS = 7;
const WITHIN_MS = 1_200;
/** A start that is not ready by then has failed. */
const READY_MS = 30_000;

/**
 * The embedded Host, which starts a nats-server and a Postgres of its own, on a data directory that holds a log: from the
 * start of the process until it is ready. The files are in the kernel's memory, as after any restart but the machine's.
 */
export const coldStart: Row = async ({ stage, scale, report }) => {
  // Without an engine: the turns here are written to the log by the bench.
  let host = await stage.embedded({ AGENT_HOST_ROLES: 'commands,reads,projector' });
  const tenant = await Tenant.create(host, stage.adminKey);
  const natsUrl = (await readFile(join(host.directory, 'nats-url'), 'utf8')).trim();
  const filler = await Filler.open({ natsUrl, hostKey: stage.hostKey, tenantId: tenant.id });
  const ids = names('cold', Math.floor(SESSIONS * scale));
  await filler.openSessions(ids, 'bench');
  await filler.turnsIn(ids, TURNS_EACH);
  await filler.close();
  report(`${filler.events} events of ${ids.length} sessions`);
  await host.stop();
  const sample = new Sample();
  const listening = new Sample();
  for (let start = 0; start <= STARTS * scale; start++) {
    const began = performance.now();
    host = await host.again({ AGENT_HOST_ROLES: 'commands,reads,projector,engine' });
    const listeningMs = performance.now() - began;
    const lines = new Lines(host.address);
    const ready = async (): Promise<true | undefined> =>
      (await lines.send(request('GET', '/ready'))).status === 200 ? true : undefined;
    if ((await waitUntil(ready, { timeoutMs: READY_MS })) === undefined) throw new Error('a start was never ready');
    const readyMs = performance.now() - began;
    lines.close();
    report(`listening after ${ms(listeningMs)}, ready after ${ms(readyMs)}`);
    await host.stop();
    // The first start has the read models to catch up with.
    if (start === 0) continue;
    sample.add(readyMs);
    listening.add(listeningMs);
  }
  return [
    {
      measure: `10 cold start of the embedded Host on ${filler.events} events, to a 200 of /ready`,
      subject: `${sample.text}; listening p50 ${ms(listening.at(0.5))}`,
      baseline: '',
      ratio: '',
      target: `p50 < ${WITHIN_MS / 1_000} s`,
      met: sample.at(0.5) < WITHIN_MS,
      goals: [{ label: '10 cold start, p50', value: sample.at(0.5), target: WITHIN_MS, unit: 'ms', better: 'less' }],
    },
  ];
};
