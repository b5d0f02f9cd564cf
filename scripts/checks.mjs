/** The steps of the check and how they run; `check.mjs` and `test.mjs` share them. */
import { spawn } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
const CODE_FOLDERS = ['src', 'test', 'bench', 'scripts', 'examples'];
/** What the compiler knew at its last run: only what has changed since is checked again. */
const TYPES_CACHE = path.join(ROOT, 'node_modules/.cache/types.tsbuildinfo');
const WIDTH = 10;

const tool = (file) => path.join(ROOT, 'node_modules', file);

/** Folders and root config files that exist. The linter gets paths always: without them its type-aware half crashes. */
function codePaths() {
  const configs = readdirSync(ROOT).filter((name) => name.endsWith('.config.ts'));
  return [...CODE_FOLDERS, ...configs].filter((name) => existsSync(path.join(ROOT, name)));
}

/** Makes the types of the client, which are in no commit; the other steps need them. */
export function typesOfClientStep() {
  return { name: 'api types', argv: [path.join(ROOT, 'scripts/client-types.ts')] };
}

/** The steps without running code under test, the slowest first so that two at a time end early. */
export function staticSteps() {
  return [
    { name: 'layers', argv: [path.join(ROOT, 'scripts/layers.mjs')] },
    { name: 'dead code', argv: [tool('knip/bin/knip.js'), '--no-progress', '--no-config-hints'] },
    { name: 'openapi', argv: [path.join(ROOT, 'scripts/lint-openapi.ts')] },
    {
      name: 'types',
      argv: [tool('typescript/bin/tsc'), '--noEmit', '--incremental', '--tsBuildInfoFile', TYPES_CACHE],
    },
    { name: 'app types', argv: [tool('typescript/bin/tsc'), '--noEmit', '-p', path.join(ROOT, 'src/console/app')] },
    { name: 'lint', argv: [tool('oxlint/bin/oxlint'), '--type-aware', '--deny-warnings', ...codePaths()] },
    { name: 'format', argv: [tool('oxfmt/bin/oxfmt'), '--check', '.'] },
  ];
}

/** The unit project (the tidy tests are in it). */
export function unitStep() {
  return { name: 'unit tests', argv: [tool('vitest/vitest.mjs'), 'run', '--project', 'unit', '--reporter=dot'] };
}

/** Runs one step to its end and keeps its output. A step that cannot start has failed. */
function runStep({ name, argv }) {
  return new Promise((resolve) => {
    const startedMs = performance.now();
    const chunks = [];
    const end = (passed) =>
      resolve({
        name,
        passed,
        seconds: (performance.now() - startedMs) / 1_000,
        output: Buffer.concat(chunks).toString().trimEnd(),
      });
    const env = process.stdout.isTTY ? process.env : { ...process.env, NO_COLOR: '1' };
    const child = spawn(process.execPath, argv, { cwd: ROOT, env, stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.on('data', (chunk) => chunks.push(chunk));
    child.stderr.on('data', (chunk) => chunks.push(chunk));
    child.on('error', (error) => {
      chunks.push(Buffer.from(String(error)));
      end(false);
    });
    child.on('close', (code) => end(code === 0));
  });
}

/** Runs steps two at a time, prints a line as each ends and the output of the failing ones; returns the results. */
export async function runSteps(steps, { atOnce = 2 } = {}) {
  const queue = [...steps];
  const results = [];
  const lane = async () => {
    for (let step = queue.shift(); step !== undefined; step = queue.shift()) {
      const result = await runStep(step);
      results.push(result);
      console.log(`${result.passed ? 'ok  ' : 'FAIL'} ${result.name.padEnd(WIDTH)} ${result.seconds.toFixed(1)} s`);
      if (!result.passed) console.log(result.output.replaceAll(/^/gm, '     '));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  return results;
}
