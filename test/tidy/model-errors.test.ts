import { expect, test } from 'vitest';
import { read, sources } from './tree.ts';

/** What ends a turn is told to tenants by code: the page has each that a driver or the engine gives, and no other. */
test('docs/models.md has the codes of failed model calls', () => {
  const given = sources('src/drivers/model', 'src/engine', 'src/domain/turn')
    .filter((file) => !file.endsWith('.test.ts'))
    .flatMap((file) => [...read(file).matchAll(/'(model_[a-z_]+)'/g)].map(([, code]) => code))
    .filter((code) => code !== 'model_context_window_exceeded');
  const documented = [...read('docs/models.md').matchAll(/^\| `(model_\w+)` +\| (?:yes|no) +\|/gm)].map(
    ([, code]) => code,
  );
  expect(new Set(documented).size).toBe(documented.length);
  expect(new Set(documented)).toEqual(new Set(given));
});
