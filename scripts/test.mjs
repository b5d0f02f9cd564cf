/**
 * `npm test`: the check, then every test project, then one line with the true count over all of it.
 *
 *   npm test                                     everything
 *   npm test -- unit                             one or more projects: unit, integration, e2e, upgrade, chaos
 *   npm test -- integration test/integration/x.test.ts -t 'name'    the rest goes to vitest
 *   npm test -- --no-check                       tests only
 *
 * A check step counts as one test. A test file that does not load counts as one failure, and so does a run that ends badly
 * without a failed test to show for it (a crash, an unhandled error, a set-up or tear-down that threw). What failed is
 * named once more right before the last line: a log of which only the end is kept still says what it was.
 */
import { spawn, spawnSync } from 'node:child_process';
import { chmod, mkdtemp, readFile, rm, statfs, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { stripVTControlCharacters } from 'node:util';
import { ROOT, runSteps, staticSteps, typesOfClientStep } from './checks.mjs';

const PROJECTS = ['unit', 'integration', 'e2e', 'upgrade', 'chaos'];

function parseArguments(argv) {
  const named = PROJECTS.filter((project) => argv.includes(project));
  const rest = argv.filter((argument) => !PROJECTS.includes(argument) && argument !== '--no-check');
  return { projects: named.length > 0 ? named : PROJECTS, rest, check: !argv.includes('--no-check') };
}

/** Where Linux keeps files in memory. The suite was seen with 0.4 GiB there, and with 2.5 GiB of processes beside it. */
const MEMORY = '/dev/shm';
const ROOM_BYTES = 4 * 2 ** 30;
const AVAILABLE_BYTES = 8 * 2 ** 30;
/** A server whose guardian has gone is given 10 s to end, and may write until then. */
const REMOVAL = { recursive: true, force: true, maxRetries: 40, retryDelay: 500 };

let isStopped = false;
/** The vitest of the present project. */
let running;

/**
 * Where test servers keep their data: in memory, unless TMPDIR says where, there is too little of it, or programs may not run
 * from there. The servers ask for every sync that they ask for elsewhere, and to a disk these took a fifth of the processor time
 * of nine files of integration. What a sync is for is a loss of power, which no test brings about.
 */
async function placeOfData() {
  if (process.env.TMPDIR !== undefined) return os.tmpdir();
  const probe = await mkdtemp(path.join(MEMORY, 'agent-host-probe-')).catch(() => undefined);
  if (probe === undefined) return os.tmpdir();
  try {
    const { bavail, bsize } = await statfs(probe);
    if (bavail * bsize < ROOM_BYTES || process.availableMemory() < AVAILABLE_BYTES) return os.tmpdir();
    const program = path.join(probe, 'program');
    await writeFile(program, '#!/bin/sh\n', { mode: 0o700 });
    return spawnSync(program).status === 0 ? MEMORY : os.tmpdir();
  } finally {
    await rm(probe, { recursive: true, force: true });
  }
}

/** Runs vitest with its output on ours; gives the exit code (a signal is not 0). */
function vitest(argv, temporary) {
  return new Promise((resolve) => {
    const entry = path.join(ROOT, 'node_modules/vitest/vitest.mjs');
    const child = spawn(process.execPath, [entry, 'run', ...argv], {
      cwd: ROOT,
      env: { ...process.env, TMPDIR: temporary },
      stdio: ['ignore', 'inherit', 'inherit'],
      // With its workers a group of its own: they outlive it, and would write where all has been removed.
      detached: true,
    });
    running = child;
    child.on('error', (error) => {
      console.error(error);
      resolve(1);
    });
    child.on('close', (code) => resolve(code ?? 1));
  });
}

/** Counts by test, not by vitest's totals, which know nothing of files that failed to load or hold no test. */
function count(report) {
  const total = { passed: 0, failures: [], skipped: 0 };
  for (const file of report.testResults) {
    const passedInFile = file.assertionResults.filter(({ status }) => status === 'passed').length;
    const failedInFile = file.assertionResults.filter(({ status }) => status === 'failed');
    const name = path.relative(ROOT, file.name);
    total.passed += passedInFile;
    total.failures.push(...failedInFile.map((test) => failure(`${name} > ${test.fullName}`, test.failureMessages[0])));
    if (failedInFile.length === 0 && (file.status === 'failed' || file.assertionResults.length === 0)) {
      total.failures.push(failure(name, file.message || 'The file holds no test.'));
    }
    total.skipped += file.assertionResults.length - passedInFile - failedInFile.length;
  }
  return total;
}

const MESSAGE_CHARS_MAX = 300;

function failure(what, message = '') {
  const [said] = stripVTControlCharacters(message).trim().split('\n');
  return `${what}: ${said.slice(0, MESSAGE_CHARS_MAX)}`;
}

/** Runs one project and counts it from its JSON report; without a report the run itself is the one failure. */
async function runProject(project, rest, scratch) {
  const reportFile = path.join(scratch, `${project}.json`);
  const reporting = ['--reporter=default', '--reporter=json', `--outputFile.json=${reportFile}`];
  // What the chaos does to disks, it does to disks.
  const temporary = project === 'chaos' ? os.tmpdir() : scratch;
  const code = await vitest(['--project', project, '--passWithNoTests', ...reporting, ...rest], temporary);
  const report = await readFile(reportFile, 'utf8')
    .then(JSON.parse)
    .catch(() => undefined);
  const total = report === undefined ? { passed: 0, failures: [], skipped: 0 } : count(report);
  if (total.failures.length === 0 && (code !== 0 || report === undefined)) {
    total.failures.push(
      `The run of ${project} ended with exit code ${code} and no failed test: counted as one failure.`,
    );
  }
  return total;
}

/** What is kept in memory stays there until it is removed: a run that is stopped ends vitest, and removes it. */
function stopOnSignals() {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => {
      isStopped = true;
      const { pid, exitCode, signalCode } = running ?? {};
      if (pid !== undefined && exitCode === null && signalCode === null) process.kill(-pid, 'SIGTERM');
    });
  }
}

/** One project after the other, each in a run of its own: a set-up that fails in one leaves the count of the others true. */
async function runTests({ projects, rest }) {
  const scratch = await mkdtemp(path.join(await placeOfData(), 'agent-host-test-'));
  // Root's Postgres runs under another account, which must be able to pass through.
  await chmod(scratch, 0o711);
  stopOnSignals();
  const sum = { passed: 0, failures: [], skipped: 0 };
  try {
    for (const project of projects) {
      if (isStopped) break;
      const total = await runProject(project, rest, scratch);
      sum.passed += total.passed;
      sum.skipped += total.skipped;
      sum.failures.push(...total.failures);
    }
    return sum;
  } finally {
    // The count is told whatever is left here.
    await rm(scratch, REMOVAL).catch((error) => console.error(error));
  }
}

const request = parseArguments(process.argv.slice(2));
const steps = request.check ? [...(await runSteps([typesOfClientStep()])), ...(await runSteps(staticSteps()))] : [];
const tests = await runTests(request);
const failures = [
  ...steps.filter((step) => !step.passed).map(({ name }) => `The check failed: ${name}.`),
  ...tests.failures,
];
const ran = tests.passed + tests.failures.length;
if (ran === 0) console.log('No test ran.');
if (isStopped) console.log('Stopped before the end: not all tests ran.');
if (failures.length > 0) console.log(['Failed:', ...failures].join('\n  '));
const passed = tests.passed + steps.filter((step) => step.passed).length;
console.log(`${passed} passed, ${failures.length} failed${tests.skipped > 0 ? `, ${tests.skipped} skipped` : ''}`);
process.exitCode = failures.length > 0 || ran === 0 || isStopped ? 1 : 0;
