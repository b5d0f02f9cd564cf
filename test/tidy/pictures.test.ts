import { globSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from './tree.ts';

/** Everybody who clones the repository has them. */
const FILES_MAX = 14;
const BYTES_MAX = 1_048_576;

test('the pictures of the console are few and small, and its page shows each', () => {
  const files = globSync('*', { cwd: join(ROOT, 'docs/console') });
  const page = readFileSync(join(ROOT, 'docs/console.md'), 'utf8');
  const shown = [...page.matchAll(/!\[[^\]]+\]\(console\/(?<name>[\w-]+\.png)\)/g)].map(
    ({ groups }) => groups?.['name'],
  );
  expect(new Set(files)).toEqual(new Set(shown));
  expect(files.length).toBeLessThanOrEqual(FILES_MAX);
  const bytes = files.reduce((sum, file) => sum + statSync(join(ROOT, 'docs/console', file)).size, 0);
  expect(bytes).toBeLessThanOrEqual(BYTES_MAX);
});
