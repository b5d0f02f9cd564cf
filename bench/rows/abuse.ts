import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { ms, Sample } from '../figures.ts';
import { expectStatus } from '../loops.ts';
import type { Row } from '../row.ts';
import type { Node } from '../stage.ts';
import { names, rotation, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const ABUSER = fileURLToPath(new URL('../abuser.ts', import.meta.url));
const WINDOW_MS = 20_000;
/** Until it has everything open that it may. */
const BEGUN_MS = 3_000;
const SESSIONS = 16;
const ABUSED = 200;
/** How much longer the polite tenant's slowest requests and turns may take than alone. */
const TIMES_MAX = 3;
/** Below this, ms, the machine's own scheduling is larger than what is measured. */
const FLOOR_MS = 20;

interface Waits {
  readonly requests: Sample;
  readonly turns: Sample;
}

/** A tenant that does all it can to be felt, and a polite one beside it that reads, writes and runs a turn at a time. */
export const abuse: Row = async ({ stage, scale, report }) => {
  const host = await stage.host('commands,reads,projector,engine');
  const [polite, abuser] = [await Tenant.create(host, stage.adminKey), await Tenant.create(host, stage.adminKey)];
  const [ids, abused] = [names('polite', SESSIONS), names('abused', ABUSED)];
  await polite.openSessions(host, ids);
  await abuser.openSessions(host, abused);
  await measured(host, { tenant: polite, ids, forMs: BEGUN_MS });
  const forMs = WINDOW_MS * scale;
  const alone = await measured(host, { tenant: polite, ids, forMs });
  report(`alone: requests ${alone.requests.text}; turns ${alone.turns.text}`);
  const env = { ADDRESS: host.address, TENANT: abuser.id, KEY: abuser.key, SESSIONS: abused.join(',') };
  const child = spawn(process.execPath, [ABUSER], { env: { ...bareEnvironment([]), ...env }, stdio: 'ignore' });
  const ended = once(child, 'exit');
  let beside: Waits;
  try {
    await pause(BEGUN_MS);
    beside = await measured(host, { tenant: polite, ids, forMs });
    if (child.exitCode !== null) throw new Error('the abusive tenant gave up');
  } finally {
    child.kill('SIGKILL');
    await ended;
  }
  report(`beside: requests ${beside.requests.text}; turns ${beside.turns.text}`);
  const line = (what: string, of: keyof Waits) => {
    const [with_, without] = [beside[of].at(0.99), alone[of].at(0.99)];
    return {
      measure: `a polite tenant’s ${what} beside one that floods, hangs, streams and trickles`,
      subject: beside[of].text,
      baseline: `alone ${alone[of].text}`,
      ratio: (with_ / without).toFixed(2),
      target: `p99 ≤ ${TIMES_MAX} × alone, or ${ms(FLOOR_MS)}`,
      met: with_ <= Math.max(FLOOR_MS, TIMES_MAX * without),
      goals: [],
    };
  };
  return [line('reads and commands', 'requests'), line('turns, POST to turn.completed on SSE', 'turns')];
};

/** One request, or one turn, at a time. */
async function measured(
  host: Node,
  { tenant, ids, forMs }: { readonly tenant: Tenant; readonly ids: readonly string[]; readonly forMs: number },
): Promise<Waits> {
  const [requests, turns] = [new Sample(), new Sample()];
  const lines = new Lines(host.address);
  let arrived = (): void => undefined;
  const onFrame = (frame: string): void => {
    if (frame.includes('event: turn.completed')) arrived();
  };
  const readers = await Promise.all(ids.map(async (id) => await tenant.follow(host, id, onFrame)));
  const next = rotation(ids);
  const sent = async (text: string, status: number): Promise<void> => {
    const begun = performance.now();
    expectStatus(await lines.send(text), status);
    requests.add(performance.now() - begun);
  };
  const end = performance.now() + forMs;
  while (performance.now() < end) {
    const id = next();
    await sent(tenant.page(id, 'limit=50'), 200);
    await sent(tenant.list(20), 200);
    const begun = performance.now();
    const completed = new Promise<void>((resolve) => (arrived = resolve));
    await Promise.all([sent(tenant.message(id, 'Hello'), 202), completed]);
    turns.add(performance.now() - begun);
  }
  for (const reader of readers) reader.close();
  lines.close();
  return { requests, turns };
}
