import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import type { SandboxAnswer, SandboxDriver } from '#src/drivers/sandbox/port.ts';
import { TestPod } from '../support/pods.ts';
import type { TestPods } from '../support/pods.ts';
import { TestSandbox } from '../support/sandboxes.ts';

/**
 * How a script ends in a pod: a real shell with the programs of the machine, whose words differ from those of the interpreter, and
 * some from machine to machine. Without one it ends there as in a virtual sandbox, but for the words of errors.
 */
const podEndSchema = z.union([
  /** It has no end, or takes what there is: which wall it meets first depends on the machine. */
  z.literal('exhausts'),
  /** It ends by itself; how, depends on which programs the machine has. */
  z.literal('ends'),
  z.strictObject({
    exitCode: z.union([z.int(), z.array(z.int())]),
    /** How it begins, or what it is like: users have numbers, kernels versions. */
    stdout: z.string().optional(),
    like: z.string().optional(),
    /** Programs without which it ends otherwise. */
    needs: z.array(z.string()).optional(),
    /** The failure in which it ends where the Host counts the volume before the script has ended. */
    orCode: z.string().optional(),
  }),
]);

/**
 * Scripts that try to get out, to find something out, or to use up what there is: of the kinds that the trackers of just-bash
 * and bashkit tell of, and others. Each has the end that is expected of it; those that never end have several, because a
 * slow machine meets the deadline before the interpreter's own limit.
 */
const scriptSchema = z.strictObject({
  group: z.string(),
  script: z.string(),
  seconds: z.int().optional(),
  outcome: z.array(z.enum(['completed', 'failed', 'timeout', 'killed'])),
  code: z.string().optional(),
  exitCode: z.int().optional(),
  /** How they begin. */
  stdout: z.string().optional(),
  stderr: z.string().optional(),
  files: z.array(z.string()).optional(),
  /** In a pod, where that differs: see `podEndSchema`. */
  pod: podEndSchema.optional(),
});
type Script = z.infer<typeof scriptSchema>;

const LINES = readFileSync(new URL('sandbox-hostile.jsonl', import.meta.url), 'utf8')
  .trimEnd()
  .split('\n');
const SCRIPTS = LINES.map((line) => scriptSchema.parse(JSON.parse(line)));
const GROUPS = [...new Set(SCRIPTS.map(({ group }) => group))];

/** So that those which fill a disk end soon. */
const LIMITS = { files: 500, fileBytes: 1_048_576, totalBytes: 8_388_608 };
/** Far above what any needs, on the slowest machine: those that never end have a time of their own. */
const SECONDS = 120;
const GROUP_MS = 600_000;
const SHOWN = 200;
const AT_ONCE = 4;

/** What of an answer its script says something about. */
function seen(script: Script, answer: SandboxAnswer): Partial<Script> {
  const isExpected = script.outcome.includes(answer.outcome);
  const outcome = isExpected ? script.outcome : [answer.outcome];
  if (script.outcome.length > 1) return { outcome };
  if (answer.outcome !== 'completed') return { outcome, code: answer.code };
  const { stdout, stderr, exitCode } = bashResult(answer.result);
  const files = answer.files?.files.map(({ path }) => path).slice(0, 20) ?? [];
  return {
    outcome,
    exitCode,
    stdout: stdout.slice(0, SHOWN),
    ...(script.stderr === undefined ? {} : { stderr: stderr.slice(0, SHOWN) }),
    ...(files.length > 0 ? { files } : {}),
  };
}

function bashResult(result: unknown): { stdout: string; stderr: string; exitCode: number } {
  return z.object({ stdout: z.string(), stderr: z.string(), exitCode: z.int() }).parse(result);
}

/** @param open makes a driver for as many scripts of one tenant as it may run at a time */
export function hostileSuite(open: (childrenPerTenant: number) => SandboxDriver): void {
  let driver: SandboxDriver;
  let directory: string;
  const planted = `planted-${process.pid}-${Math.random().toString(36).slice(2)}`;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'agent-host-planted-'));
    await writeFile(join(directory, 'secret'), planted);
    process.env['AGENT_HOST_PLANTED'] = planted;
    driver = open(AT_ONCE);
  });
  afterAll(async () => {
    delete process.env['AGENT_HOST_PLANTED'];
    await driver.stop();
    await rm(directory, { recursive: true });
  });

  async function run(script: Script): Promise<readonly unknown[]> {
    const box = new TestSandbox(driver, 'tn_hostile');
    box.limits = LIMITS;
    const answer = await box.bash(script.script, script.seconds ?? SECONDS);
    const got = seen(script, answer);
    const { group: _, script: __, seconds: ___, pod: ____, ...wanted } = script;
    const isSame = JSON.stringify(sorted(got)) === JSON.stringify(sorted(wanted));
    const leaks = [planted, directory, process.cwd(), 'root:x:0'].filter((text) =>
      JSON.stringify(answer).includes(text),
    );
    return isSame && leaks.length === 0 ? [] : [{ script: script.script, got, wanted, leaks }];
  }

  test.each(GROUPS)(
    'each script ends as expected, and shows nothing of the Host: %s',
    async (group) => {
      const scripts = SCRIPTS.filter((script) => script.group === group);
      expect(await wrongOf(scripts, run)).toEqual([]);
    },
    GROUP_MS,
  );

  test('there are 200 of them or more', () => {
    expect(SCRIPTS.length).toBeGreaterThanOrEqual(200);
  });

  test('a file of the Host that is there cannot be read by any of its names', async () => {
    const box = new TestSandbox(driver, 'tn_hostile');
    const path = join(directory, 'secret');
    const script = `cat ${path}; cat /workspace/../${path}; cat < ${path}; . ${path}; awk 1 ${path}; tar cf - ${path}; grep -r planted ${directory}; cp ${path} . ; cat secret`;
    const answer = await box.bash(script);
    expect(JSON.stringify(answer)).not.toContain(planted);
    expect(box.paths()).toEqual([]);
  });

  test('after all of it, another tenant works as before', async () => {
    const answer = await new TestSandbox(driver, 'tn_other').bash('echo fine; ls -a; ls /tmp');
    expect(answer).toMatchObject({ outcome: 'completed', result: { stdout: 'fine\n.\n..\n', exitCode: 0 } });
  });
}

/** Of a script in a pod: a real shell on the programs of the machine, whose words differ from machine to machine. */
const POD_LIMITS = { cpus: 1, memoryBytes: 268_435_456, storageBytes: 16_777_216 };
const EXHAUSTING_SECONDS = 1;

/** Where the programs of a pod are, which has those of the machine. */
const POD_PROGRAMS = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin'];

function endsInPod({ pod, ...script }: Script, answer: SandboxAnswer): boolean {
  if (pod === 'exhausts') return true;
  const own = typeof pod === 'object' ? pod : null;
  if (answer.outcome !== 'completed') return own?.orCode !== undefined && answer.code === own.orCode;
  const hasAll = (programs: readonly string[]) =>
    programs.every((name) => POD_PROGRAMS.some((directory) => existsSync(`${directory}/${name}`)));
  if (pod === 'ends' || !hasAll(own?.needs ?? [])) return true;
  const { stdout, exitCode } = bashResult(answer.result);
  const wanted = own ?? script;
  if (![wanted.exitCode].flat().includes(exitCode)) return false;
  if (own?.like !== undefined) return new RegExp(own.like, 'u').test(stdout);
  return stdout.slice(0, SHOWN) === (wanted.stdout ?? '');
}

/** Scripts against a machine, for pods alone: each ends by itself, with just this. */
const podScriptSchema = z.strictObject({
  group: z.string(),
  script: z.string(),
  stdout: z.string(),
  exitCode: z.int(),
});
const POD_SCRIPTS = readFileSync(new URL('pod-hostile.jsonl', import.meta.url), 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => podScriptSchema.parse(JSON.parse(line)));

/** The same scripts in pods, and some for pods alone. @param open makes a driver for as many scripts of one tenant as it may run at a time */
export function hostilePodSuite(open: (childrenPerTenant: number) => TestPods): void {
  let pods: TestPods;
  const planted = `planted-${process.pid}-${Math.random().toString(36).slice(2)}`;
  beforeAll(async () => {
    pods = open(AT_ONCE);
    await writeFile(join(pods.directory, 'secret'), planted);
    process.env['AGENT_HOST_PLANTED'] = planted;
  });
  afterAll(async () => {
    delete process.env['AGENT_HOST_PLANTED'];
    await pods[Symbol.asyncDispose]();
  });

  async function run(script: Script): Promise<readonly unknown[]> {
    const box = await TestPod.start(pods.driver, 'tn_hostile');
    box.limits = POD_LIMITS;
    const answer = await box.bash(script.script, script.pod === 'exhausts' ? EXHAUSTING_SECONDS : SECONDS);
    const isExpected = endsInPod(script, answer);
    const leaks = [planted, process.cwd(), 'root:x:0'].filter((text) => JSON.stringify(answer).includes(text));
    await pods.driver.discard(box.volume);
    return isExpected && leaks.length === 0 ? [] : [{ ...script, answer, leaks }];
  }

  test(
    'each script ends as expected, and shows nothing of the Host',
    async () => expect(await wrongOf(SCRIPTS, run)).toEqual([]),
    GROUP_MS,
  );

  async function runAlone({ script, stdout, exitCode }: (typeof POD_SCRIPTS)[number]): Promise<readonly unknown[]> {
    const box = await TestPod.start(pods.driver, 'tn_hostile');
    box.limits = POD_LIMITS;
    const answer = await box.bash(script, SECONDS);
    await pods.driver.discard(box.volume);
    const got = answer.outcome === 'completed' ? bashResult(answer.result) : null;
    return got?.stdout === stdout && got.exitCode === exitCode ? [] : [{ script, stdout, exitCode, answer }];
  }

  test(
    'each script against a machine ends as expected',
    async () => expect(await wrongOf(POD_SCRIPTS, runAlone)).toEqual([]),
    GROUP_MS,
  );

  test('after all of it, no file of the Host was read or changed, and another tenant works as before', async () => {
    const box = await TestPod.start(pods.driver, 'tn_other');
    const path = join(pods.directory, 'secret');
    expect(await box.out(`cat ${path} 2>&1 | grep -o 'No such.*'; ls -A . /tmp`)).toBe(
      'No such file or directory\n.:\n\n/tmp:\n',
    );
    expect(readFileSync(path, 'utf8')).toBe(planted);
    expect(await pods.driver.volumes()).toEqual([box.volume]);
  });
}

/** Runs scripts, some at a time; what is wrong with them. */
async function wrongOf<T>(scripts: readonly T[], run: (script: T) => Promise<readonly unknown[]>): Promise<unknown[]> {
  const left = [...scripts];
  const wrong: unknown[] = [];
  const next = async (): Promise<void> => {
    for (let script = left.pop(); script !== undefined; script = left.pop()) wrong.push(...(await run(script)));
  };
  await Promise.all(Array.from({ length: AT_ONCE }, next));
  return wrong;
}

function sorted(value: object): unknown {
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}
