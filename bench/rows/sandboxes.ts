import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { EMPTY_MANIFEST, WORKSPACE_LIMITS } from '#src/domain/sandbox/manifest.ts';
import type { WorkspaceManifest } from '#src/domain/sandbox/manifest.ts';
import { withDescendants } from '#src/drivers/sandbox/child-process.ts';
import type { ContentStore, SandboxDriver } from '#src/drivers/sandbox/port.ts';
import { openVirtualSandboxes } from '#src/drivers/sandbox/virtual.ts';
import { buildProgram } from '../../scripts/build.ts';
import { AdminClient } from '../../test/support/client.ts';
import { crowd } from '../../test/support/crowd.ts';
import { forgetPeak, MIB, ms, peakBytes, residentBytes, Sample } from '../figures.ts';
import { expectStatus } from '../loops.ts';
import type { Row } from '../row.ts';
import type { Stage } from '../stage.ts';
import { Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const CALLS = 600;
const WARM_UP = 50;
const SESSIONS = 200;
const COMMANDS = 10;
/** A tenant has 100 sandboxes at most. */
const TENANTS = 10;
const CROWD_MS = 600_000;
/** Two of them hang beside what is measured. */
const HANGING = 2;
const ENDLESS = 'while true; do x=$(seq 1 99999); done';
/** What others may cost a tenant. */
const SLOWER_MAX = 2;
const TURNS = 300;
/** Of a turn with two commands. */
const TURN_P50_MAX_MS = 40;

const run = promisify(execFile);

class Contents implements ContentStore {
  readonly #bytes = new Map<string, Uint8Array>();

  async read(sha256: string): Promise<Uint8Array> {
    const bytes = this.#bytes.get(sha256);
    if (bytes === undefined) throw new Error('these bytes are not there');
    return await Promise.resolve(bytes);
  }

  async write(sha256: string, bytes: Uint8Array): Promise<void> {
    this.#bytes.set(sha256, Uint8Array.from(bytes));
    await Promise.resolve();
  }
}

/** The files of one session, over the driver alone. */
class Session {
  files: WorkspaceManifest = EMPTY_MANIFEST;
  readonly #contents = new Contents();
  readonly #driver: SandboxDriver;
  readonly #tenant: string;

  constructor(driver: SandboxDriver, tenant: string) {
    this.#driver = driver;
    this.#tenant = tenant;
  }

  /** The output of a command that ends well. */
  async bash(command: string, signal: AbortSignal = new AbortController().signal): Promise<string> {
    const tool = { name: 'bash', input: { command, timeoutSeconds: 600 } } as const;
    const fixed = { contents: this.#contents, limits: WORKSPACE_LIMITS, python: false };
    const answer = await this.#driver.run({ tenant: this.#tenant, tool, files: this.files, ...fixed }, signal);
    if (answer.outcome !== 'completed') throw new Error(`${command}: ${answer.message}`);
    this.files = answer.files ?? this.files;
    return 'stdout' in answer.result ? answer.result.stdout : '';
  }
}

async function timed(calls: number, call: () => Promise<unknown>): Promise<Sample> {
  const sample = new Sample();
  for (let i = 0; i < WARM_UP + calls; i++) {
    const began = performance.now();
    await call();
    if (i >= WARM_UP) sample.add(performance.now() - began);
  }
  return sample;
}

const NOTES = 'for i in 1 2 3 4 5 6 7 8 9; do echo "line $i" >> notes.txt; done';
const SCRIPT = 'grep -c line notes.txt; sort -r notes.txt | head -1';

/**
 * Commands in virtual sandboxes, by the driver alone, beside the same in the system's own bash without any wall; and sessions of a Host
 * that all have one.
 */
export const sandboxes: Row = async ({ stage, scale, report }) => {
  const program = join(dirname(await buildProgram()), 'sandbox/child.mjs');
  const children = 2 * availableParallelism();
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-bench-sandboxes-'));
  const driver = openVirtualSandboxes({
    program: { node: process.execPath, file: program, readable: [dirname(program)] },
    children,
    childrenPerTenant: Math.ceil(children / 2),
    childrenIdle: 2 * children,
    memoryMiB: 256,
    bubblewrap: 'auto',
    path: process.env['PATH'],
    log: report,
  });
  try {
    const session = new Session(driver, 'tn_one');
    await session.bash(NOTES);
    await run('/bin/bash', ['-c', NOTES], { cwd: directory });
    const calls = Math.ceil(CALLS * scale);
    const alone = await timed(calls, async () => await session.bash(SCRIPT));
    const bare = await timed(calls, async () => await run('/bin/bash', ['-c', SCRIPT], { cwd: directory }));
    report(`warm call ${alone.text} (${driver.status().confinement})`);
    const beside = await besideHanging(driver, async () => await timed(calls, async () => await session.bash(SCRIPT)));
    report(`beside ${HANGING} that hang ${beside.text}`);
    const slower = beside.at(0.99) / alone.at(0.99);
    const turns = await turnsOfTwo(stage, scale);
    report(`turns ${turns.text}`);
    const many = await manySessions(stage, scale);
    report(many.text);
    return [
      {
        measure: `a command in a warm virtual sandbox (bare: the system's bash, a process for each), ${driver.status().confinement}`,
        subject: alone.text,
        baseline: bare.text,
        ratio: (alone.at(0.5) / bare.at(0.5)).toFixed(2),
        target: 'none: a figure to look at',
        met: true,
        goals: [],
      },
      {
        measure: `the same beside ${HANGING} commands of another tenant that hang (bare: without them)`,
        subject: beside.text,
        baseline: alone.text,
        ratio: slower.toFixed(2),
        target: `p99 < ${SLOWER_MAX} ×`,
        met: slower < SLOWER_MAX,
        goals: [],
      },
      {
        measure:
          'a turn with two `bash` calls in a warm virtual sandbox, one in flight, POST to turn.completed on SSE (bare: two warm calls)',
        subject: turns.text,
        baseline: `p50 ${ms(2 * alone.at(0.5))}`,
        ratio: (turns.at(0.5) / (2 * alone.at(0.5))).toFixed(2),
        target: `p50 < ${TURN_P50_MAX_MS} ms`,
        met: turns.at(0.5) < TURN_P50_MAX_MS,
        goals: [],
      },
      {
        measure: `${many.sessions} sessions of a Host with a virtual sandbox at once, ${COMMANDS} commands each (bare: a warm call alone)`,
        subject: many.text,
        baseline: alone.text,
        ratio: '-',
        target: 'nothing lost or mixed up',
        met: many.problems.length === 0,
        goals: [],
      },
    ];
  } finally {
    await driver.stop();
    await rm(directory, { recursive: true });
  }
};

async function besideHanging(driver: SandboxDriver, work: () => Promise<Sample>): Promise<Sample> {
  const controller = new AbortController();
  const other = new Session(driver, 'tn_other');
  const hung = Array.from({ length: HANGING }, async () => await other.bash(ENDLESS, controller.signal));
  const ends = Promise.allSettled(hung);
  try {
    return await work();
  } finally {
    controller.abort(new Error('enough'));
    await ends;
  }
}

const CALLS_OF_A_TURN = ['echo "$RANDOM" >> notes; tail -n 3 notes', 'wc -l < notes'];

/** One turn after the other, of one session. */
async function turnsOfTwo(stage: Stage, scale: number): Promise<Sample> {
  const host = await stage.host('commands,reads,projector,engine', { AGENT_HOST_PODS: 'off' });
  const tenant = await Tenant.create(host, stage.adminKey);
  await tenant.saveAgent(host, 'bench', { sandboxTools: ['bash'] });
  await tenant.openSessions(host, ['turns']);
  let [executed, arrived] = [0, (): void => undefined];
  const reader = await tenant.follow(host, 'turns', (frame) => {
    if (frame.includes('event: sandbox.exec') && frame.includes('"outcome":"completed"')) executed += 1;
    if (/^event: turn\.(completed|failed)/m.test(frame)) arrived();
  });
  const lines = new Lines(host.address);
  const toolCalls = CALLS_OF_A_TURN.map((command) => ({ name: 'bash', input: { command } }));
  const script = JSON.stringify({ fixture: [{ toolCalls }, { text: 'done' }] });
  const calls = Math.ceil(TURNS * scale);
  try {
    const sample = await timed(calls, async () => {
      const seen = new Promise<void>((resolve) => {
        arrived = resolve;
      });
      const [answer] = await Promise.all([lines.send(tenant.message('turns', script)), seen]);
      expectStatus(answer, 202);
    });
    const wanted = (calls + WARM_UP) * CALLS_OF_A_TURN.length;
    if (executed !== wanted) throw new Error(`${executed} commands of ${wanted} were completed`);
    return sample;
  } finally {
    reader.close();
    lines.close();
    await host.stop();
  }
}

/** Each session adds its name to a file of its own. */
async function manySessions(stage: Stage, scale: number) {
  const host = await stage.host('commands,reads,projector,engine', { AGENT_HOST_PODS: 'off' });
  const admin = new AdminClient({ url: `http://${host.address}`, adminKey: stage.adminKey });
  const tenants = await Promise.all(Array.from({ length: TENANTS }, async () => await admin.createTenant()));
  const sessions = Math.ceil(SESSIONS * scale);
  forgetPeak(host.pid);
  const before = residentBytes(host.pid);
  let childrenBytes = 0;
  const watching = setInterval(() => {
    childrenBytes = Math.max(childrenBytes, bytesBelow(host.pid));
  }, 200);
  const began = performance.now();
  try {
    const { problems, durationsMs } = await crowd(tenants, { sessions, commands: COMMANDS, withinMs: CROWD_MS });
    const rate = (1_000 * durationsMs.length) / (performance.now() - began);
    const calls = new Sample();
    for (const one of durationsMs) calls.add(one);
    const grown = Math.round((peakBytes(host.pid) - before) / MIB);
    const memory = `memory of the Host + ${grown} MiB, of its children ${Math.round(childrenBytes / MIB)} MiB at most`;
    const text = `${rate.toFixed(0)} commands/s, a call ${calls.text}, ${memory}${problems.length === 0 ? '' : `; ${problems.slice(0, 3).join('; ')}`}`;
    return { text, problems, sessions };
  } finally {
    clearInterval(watching);
    await host.stop();
  }
}

/** Memory of all processes below one, bytes. */
function bytesBelow(pid: number): number {
  let sum = 0;
  for (const each of withDescendants(pid).slice(1)) {
    try {
      sum += residentBytes(each);
    } catch {
      // It has just ended.
    }
  }
  return sum;
}
