import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
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
import { forgetPeak, MIB, ms, peakBytes, residentBytes, Sample } from '../figures.ts';
import type { Row } from '../row.ts';

const CALLS = 600;
const WARM_UP = 50;
const SESSIONS = 200;
const COMMANDS = 10;
/** Two of them hang beside what is measured. */
const HANGING = 2;
const ENDLESS = 'while true; do x=$(seq 1 99999); done';
/** What others may cost a tenant. */
const SLOWER_MAX = 2;

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

/** Commands in virtual sandboxes, by the driver alone, beside the same in the system's own bash without any wall. */
export const sandboxes: Row = async ({ scale, report }) => {
  const program = join(dirname(await buildProgram()), 'sandbox/child.mjs');
  const children = 2 * availableParallelism();
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-bench-sandboxes-'));
  const driver = openVirtualSandboxes({
    program: { node: process.execPath, file: program, readable: [dirname(program)] },
    children,
    childrenPerTenant: Math.ceil(children / 2),
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
    const many = await manySessions(driver);
    report(many);
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
        measure: `${SESSIONS} sessions with a virtual sandbox at once, ${COMMANDS} commands each`,
        subject: many,
        baseline: ms(alone.at(0.5)),
        ratio: '-',
        target: 'nothing lost or mixed up',
        met: true,
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

/** Each session counts up in a file of its own. @throws when one of them has another count in the end */
async function manySessions(driver: SandboxDriver): Promise<string> {
  forgetPeak(process.pid);
  const before = residentBytes(process.pid);
  let childrenBytes = 0;
  const watching = setInterval(() => {
    childrenBytes = Math.max(childrenBytes, bytesBelow(process.pid));
  }, 200);
  const began = performance.now();
  try {
    const outputs = await Promise.all(
      Array.from({ length: SESSIONS }, async (_, n) => {
        const session = new Session(driver, `tn_${n % 10}`);
        let output = '';
        for (let i = 0; i < COMMANDS; i++) output = await session.bash(`echo "${n}-${i}" >> log; cat log`);
        return output;
      }),
    );
    const seconds = (performance.now() - began) / 1_000;
    const hash = createHash('sha256').update(outputs.join('')).digest('hex');
    const wanted = Array.from({ length: SESSIONS }, (_, n) =>
      Array.from({ length: COMMANDS }, (__, i) => `${n}-${i}\n`).join(''),
    );
    if (hash !== createHash('sha256').update(wanted.join('')).digest('hex'))
      throw new Error('outputs are lost or mixed up');
    const grown = (peakBytes(process.pid) - before) / MIB;
    const rate = (SESSIONS * COMMANDS) / seconds;
    const { children } = driver.status();
    return `${rate.toFixed(0)} commands/s, memory of the Host + ${grown.toFixed(0)} MiB, of its ${children} children ${(childrenBytes / MIB).toFixed(0)} MiB at most`;
  } finally {
    clearInterval(watching);
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
