import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ROOT } from '../tidy/tree.ts';

/** The last line of `npm test` is believed by people and machines, so it is counted here over a tree with known sins. */
const IMPORT = "import { beforeAll, test } from 'vitest';\n";
const FILES = {
  'test/tidy/good.test.ts': `${IMPORT}test('a', () => {});\ntest('b', () => {});\n`,
  'test/tidy/bad.test.ts': `${IMPORT}test('c', () => { throw new Error('c'); });\n`,
  'test/tidy/absent.test.ts': "import './no-such-file.ts';\n",
  'test/tidy/empty.test.ts': IMPORT,
  'test/tidy/hook.test.ts': `${IMPORT}beforeAll(() => { throw new Error('hook'); });\ntest('d', () => {});\n`,
  'test/upgrade/killed.test.ts': `${IMPORT}test('e', () => { process.kill(process.pid, 'SIGKILL'); });\n`,
  'test/integration/fine.test.ts': `${IMPORT}test('f', () => {});\n`,
  'test/support/global-setup.ts': "export default function setup() { throw new Error('set-up'); }\n",
  'test/chaos/loose.test.ts': `${IMPORT}test('g', () => { void Promise.reject(new Error('nobody waits')); });\n`,
};

let root: string;

/** The end of a run's output: the last line, and what is listed right before it. */
function endOf(...argv: string[]): { line: string | undefined; failures: string[]; status: number | null } {
  const run = spawnSync(process.execPath, [path.join(root, 'scripts/test.mjs'), '--no-check', ...argv], {
    encoding: 'utf8',
    env: { ...process.env, CI: 'true', NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const lines = run.stdout.trimEnd().split('\n');
  const failures = lines.slice(lines.lastIndexOf('Failed:') + 1, -1);
  return { line: lines.at(-1), failures: lines.includes('Failed:') ? failures : [], status: run.status };
}

beforeAll(() => {
  root = mkdtempSync(path.join(os.tmpdir(), 'agent-host-count-'));
  for (const name of ['scripts', 'vitest.config.ts', 'package.json', 'tsconfig.json']) {
    cpSync(path.join(ROOT, name), path.join(root, name), { recursive: true });
  }
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(root, 'node_modules'));
  for (const [file, text] of Object.entries(FILES)) {
    mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
    writeFileSync(path.join(root, file), text);
  }
});

afterAll(() => rmSync(root, { recursive: true, force: true }));

// Failed: the bad test, the file that does not load, the empty one, the hook. The test behind the hook never ran.
test('each kind of failing file counts, and is named with what it said', () => {
  const { line, failures, status } = endOf('unit');
  expect({ line, status }).toEqual({ line: '2 passed, 4 failed, 1 skipped', status: 1 });
  expect(failures.toSorted()).toEqual([
    expect.stringMatching(/^ {2}test\/tidy\/absent\.test\.ts: .*no-such-file/),
    '  test/tidy/bad.test.ts > c: Error: c',
    '  test/tidy/empty.test.ts: The file holds no test.',
    '  test/tidy/hook.test.ts: hook',
  ]);
});

test('a good file alone passes', () => {
  expect(endOf('unit', 'test/tidy/good.test.ts')).toEqual({ line: '2 passed, 0 failed', failures: [], status: 0 });
});

test('a killed worker, a failing set-up and a loose promise count', () => {
  const { line, failures, status } = endOf('integration', 'upgrade', 'chaos');
  expect(line).toMatch(/^1 passed, 3 failed(, 1 skipped)?$/);
  expect(failures).toEqual(
    ['integration', 'upgrade', 'chaos'].map((project) => expect.stringContaining(`The run of ${project} ended with`)),
  );
  expect(status).toBe(1);
});

test('a run without a test fails', () => {
  expect(endOf('unit', 'no-such-file')).toEqual({ line: '0 passed, 0 failed', failures: [], status: 1 });
});
