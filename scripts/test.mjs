/**
 * `npm test`: the check, then every test project, then one line with the true count over all of it.
 *
 *   npm test                                     everything
 *   npm test -- unit                             one or more projects: unit, integration, e2e, chaos
 *   npm test -- integration test/integration/x.test.ts -t 'name'    the rest goes to vitest
 *   npm test -- --no-check                       tests only
 *
 * A check step counts as one test. A test file that does not load counts as one failure, and so does a run that ends badly
 * without a failed test to show for it (a crash, an unhandled error, a set-up or tear-down that threw).
 */
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { ROOT, runSteps, staticSteps } from './checks.mjs';

const PROJECTS = ['unit', 'integration', 'e2e', 'chaos'];

function parseArguments(argv) {
  const named = PROJECTS.filter((project) => argv.includes(project));
  const rest = argv.filter((argument) => !PROJECTS.includes(argument) && argument !== '--no-check');
  return { projects: named.length > 0 ? named : PROJECTS, rest, check: !argv.includes('--no-check') };
}

/** Runs vitest with its output on ours; gives the exit code (a signal is not 0). */
function vitest(argv) {
  return new Promise((resolve) => {
    const entry = path.join(ROOT, 'node_modules/vitest/vitest.mjs');
    const child = spawn(process.execPath, [entry, 'run', ...argv], {
      cwd: ROOT,
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    child.on('error', (error) => {
      console.error(error);
      resolve(1);
    });
    child.on('close', (code) => resolve(code ?? 1));
  });
}

/** Counts by test, not by vitest's totals, which know nothing of files that failed to load or hold no test. */
function count(report) {
  const total = { passed: 0, failed: 0, skipped: 0 };
  for (const file of report.testResults) {
    const failedInFile = file.assertionResults.filter(({ status }) => status === 'failed').length;
    const passedInFile = file.assertionResults.filter(({ status }) => status === 'passed').length;
    const broken = file.status === 'failed' || file.assertionResults.length === 0;
    total.passed += passedInFile;
    total.failed += broken ? Math.max(1, failedInFile) : failedInFile;
    total.skipped += file.assertionResults.length - passedInFile - failedInFile;
  }
  return total;
}

/** Runs one project and counts it from its JSON report; without a report the run itself is the one failure. */
async function runProject(project, rest, reportFile) {
  const code = await vitest([
    '--project',
    project,
    '--passWithNoTests',
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${reportFile}`,
    ...rest,
  ]);
  const report = await readFile(reportFile, 'utf8')
    .then(JSON.parse)
    .catch(() => undefined);
  const total = report === undefined ? { passed: 0, failed: 0, skipped: 0 } : count(report);
  if (total.failed === 0 && (code !== 0 || report === undefined)) {
    console.log(`The run of ${project} ended with exit code ${code} and no failed test: counted as one failure.`);
    total.failed = 1;
  }
  return total;
}

/** One project after the other, each in a run of its own: a set-up that fails in one leaves the count of the others true. */
async function runTests({ projects, rest }) {
  const scratch = await mkdtemp(path.join(os.tmpdir(), 'agent-host-test-'));
  const sum = { passed: 0, failed: 0, skipped: 0 };
  try {
    for (const project of projects) {
      const total = await runProject(project, rest, path.join(scratch, `${project}.json`));
      for (const key of Object.keys(sum)) sum[key] += total[key];
    }
    return sum;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

const request = parseArguments(process.argv.slice(2));
const steps = request.check ? await runSteps(staticSteps()) : [];
const tests = await runTests(request);
const ran = tests.passed + tests.failed;
if (ran === 0) console.log('No test ran.');
const passed = tests.passed + steps.filter((step) => step.passed).length;
const failed = tests.failed + steps.filter((step) => !step.passed).length;
console.log(`${passed} passed, ${failed} failed${tests.skipped > 0 ? `, ${tests.skipped} skipped` : ''}`);
process.exitCode = failed > 0 || ran === 0 ? 1 : 0;
