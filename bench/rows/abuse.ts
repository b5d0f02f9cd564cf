import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { cpuMs, ms, Sample } from '../figures.ts';
import { expectStatus } from '../loops.ts';
import type { Row } from '../row.ts';
import type { Node, Stage } from '../stage.ts';
import { names, rotation, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const ABUSER = fileURLToPath(new URL('../abuser.ts', import.meta.url));
const BURNER = fileURLToPath(new URL('../burner.ts', import.meta.url));
/** Of each of the three, in all rounds together. */
const WINDOW_MS = 40_000;
/** In turns, so that what else the machine does meets all of them alike. */
const ROUNDS = 4;
/** Until the abusive tenant has everything open that it may. */
const BEGUN_MS = 3_000;
/** Until what was under way has ended, or begun. */
const SETTLED_MS = 500;
const SESSIONS = 16;
const ABUSED = 200;
/** How much longer the polite tenant's slowest requests and turns may take than alone. */
const TIMES_MAX = 3;
/** Below this, ms, the machine's own scheduling is larger than what is measured. */
const FLOOR_MS = 20;

class Waits {
  readonly requests = new Sample();
  readonly turns = new Sample();
  /** Processor time of the Host and its servers, and how long they were measured. */
  cpuMs = 0;
  tookMs = 0;

  get text(): string {
    return `requests ${this.requests.text}; turns ${this.turns.text}; ${this.cores.toFixed(2)} processors`;
  }

  get cores(): number {
    return this.cpuMs / this.tookMs;
  }
}

/**
 * A tenant that does all it can to be felt, and a polite one beside it that reads, writes and runs a turn at a time. On a
 * machine with few processors some of what the polite one feels is only that they are taken: the third part of each round
 * shows how much, with processes that take what the abusive tenant made the Host and its servers take.
 */
export const abuse: Row = async ({ stage, scale, report }) => {
  const host = await stage.host('commands,reads,projector,engine');
  const [tenant, abuser] = [await Tenant.create(host, stage.adminKey), await Tenant.create(host, stage.adminKey)];
  const [ids, abused] = [names('polite', SESSIONS), names('abused', ABUSED)];
  await tenant.openSessions(host, ids);
  await abuser.openSessions(host, abused);
  const forMs = (WINDOW_MS * scale) / ROUNDS;
  const polite = { stage, host, tenant, ids, forMs };
  await measure(polite, new Waits());
  const [alone, beside, burnt] = [new Waits(), new Waits(), new Waits()];
  const env = { ADDRESS: host.address, TENANT: abuser.id, KEY: abuser.key, SESSIONS: abused.join(',') };
  const child = start(ABUSER, env);
  let [answers, perSecond] = [0, 0];
  child.stdout?.setEncoding('latin1').on('data', (told) => (answers = Number(String(told).trim().split('\n').at(-1))));
  try {
    await pause(BEGUN_MS);
    const before = answers;
    for (let round = 0; round < ROUNDS; round++) {
      child.kill('SIGSTOP');
      await pause(SETTLED_MS);
      await measure(polite, alone);
      await whileBurning(beside.cores - alone.cores, async () => await measure(polite, burnt));
      child.kill('SIGCONT');
      await pause(SETTLED_MS);
      await measure(polite, beside);
      if (child.exitCode !== null) throw new Error('the abusive tenant gave up');
    }
    perSecond = (answers - before) / (beside.tookMs / 1_000);
  } finally {
    await end(child);
  }
  for (const [name, waits] of Object.entries({ alone, beside, burnt })) report(`${name}: ${waits.text}`);
  const line = (what: string, of: 'requests' | 'turns') => {
    const [with_, without] = [beside[of].at(0.99), alone[of].at(0.99)];
    return {
      measure: `a polite tenant’s ${what} beside one that floods, hangs, streams and trickles`,
      subject: `${beside[of].text}; the abusive one gets ${perSecond.toFixed(0)} answers/s`,
      baseline: `alone ${alone[of].text}; with as much processor time taken by others ${burnt[of].text}`,
      ratio: (with_ / without).toFixed(2),
      target: `p99 ≤ ${TIMES_MAX} × alone, or ${ms(FLOOR_MS)}`,
      met: with_ <= Math.max(FLOOR_MS, TIMES_MAX * without),
      goals: [],
    };
  };
  return [line('reads and commands', 'requests'), line('turns, POST to turn.completed on SSE', 'turns')];
};

function start(program: string, env: Readonly<Record<string, string>>): ChildProcess {
  const child = spawn(process.execPath, [program], {
    ...{ env: { ...bareEnvironment([]), ...env }, stdio: ['pipe', 'pipe', 'ignore'] },
  });
  child.stdin.on('error', () => undefined);
  return child;
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}

/** Does something while processes that have nothing to do with the Host take so many processors. */
async function whileBurning(cores: number, work: () => Promise<void>): Promise<void> {
  // Of the first round it is not known yet.
  if (!(cores > 0)) return;
  const count = Math.ceil(cores);
  const burners = Array.from({ length: count }, () => start(BURNER, { SHARE: String(cores / count) }));
  try {
    await pause(SETTLED_MS);
    await work();
  } finally {
    await Promise.all(burners.map(end));
  }
}

interface Polite {
  readonly stage: Stage;
  readonly host: Node;
  readonly tenant: Tenant;
  readonly ids: readonly string[];
  readonly forMs: number;
}

/** One request, or one turn, at a time. */
async function measure({ stage, host, tenant, ids, forMs }: Polite, waits: Waits): Promise<void> {
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
    waits.requests.add(performance.now() - begun);
  };
  const cpu = (): number =>
    [host.pid, stage.serverPids.nats, stage.serverPids.postgres].reduce((sum, pid) => sum + cpuMs(pid), 0);
  const [begun, cpuBefore] = [performance.now(), cpu()];
  while (performance.now() < begun + forMs) {
    const id = next();
    await sent(tenant.page(id, 'limit=50'), 200);
    await sent(tenant.list(20), 200);
    const asked = performance.now();
    const completed = new Promise<void>((resolve) => (arrived = resolve));
    await Promise.all([sent(tenant.message(id, 'Hello'), 202), completed]);
    waits.turns.add(performance.now() - asked);
  }
  waits.cpuMs += cpu() - cpuBefore;
  waits.tookMs += performance.now() - begun;
  for (const reader of readers) reader.close();
  lines.close();
}
