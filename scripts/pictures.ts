import { spawnSync } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/**
 * Takes the pictures of the console again that docs/console.md shows: its tests take one of each page while they use it.
 * `npm run pictures`
 */
const ROOT = dirname(import.meta.dirname);
const PAGE = join(ROOT, 'docs/console.md');
const PICTURES = join(ROOT, 'docs/console');
const TESTS = [join(ROOT, 'scripts/test.mjs'), '--no-check', 'e2e', 'test/e2e/console'];

const taken = await mkdtemp(join(tmpdir(), 'agent-host-pictures-'));
try {
  const command = [`CONSOLE_SCREENSHOTS=${taken}`, process.execPath, ...TESTS];
  const { status } = spawnSync('/usr/bin/env', command, { cwd: ROOT, stdio: 'inherit' });
  if (status !== 0) throw new Error('the tests of the console do not pass');
  const shown = [...(await readFile(PAGE, 'utf8')).matchAll(/\(console\/(?<name>[\w-]+\.png)\)/g)];
  await rm(PICTURES, { recursive: true, force: true });
  await mkdir(PICTURES);
  for (const { groups } of shown) {
    const name = groups?.['name'] ?? '';
    await copyFile(join(taken, name), join(PICTURES, name));
    process.stdout.write(`${name}: ${(await stat(join(PICTURES, name))).size} bytes\n`);
  }
} finally {
  await rm(taken, { recursive: true, force: true });
}
