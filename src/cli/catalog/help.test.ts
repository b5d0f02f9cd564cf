import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { expect, test } from 'vitest';
import { CALLER_COMMANDS } from './callers.ts';
import { commandNames, entryOf, helpOf, overview } from './help.ts';

test.each(commandNames())('%s has an example that names it, with options that it has', (name) => {
  const { examples = [], options = {} } = entryOf(name) ?? {};
  expect(examples.length).toBeGreaterThan(0);
  for (const example of examples) {
    expect(example).toContain(`agent-host ${name}`);
    const flags = [...example.matchAll(/ (--?[a-z][\w-]*)/g)].map(([, flag = '']) => flag);
    expect(() => parseArgs({ args: flags, options, strict: false })).not.toThrow();
    for (const flag of flags) expect(helpOf(name)).toContain(flag);
  }
});

test('every command of a caller that gives something gives it as JSON too', () => {
  const without = Object.entries(CALLER_COMMANDS).filter(([, { options }]) => !('json' in options));
  expect(without.map(([name]) => name)).toEqual(['completion', 'help']);
});

test('the overview fits, and the page about the terminal names every command of a caller', () => {
  for (const line of overview().split('\n')) expect(line.length).toBeLessThanOrEqual(120);
  const page = readFileSync(new URL('../../../docs/cli.md', import.meta.url), 'utf8');
  for (const name of Object.keys(CALLER_COMMANDS)) {
    const [first = '', second = ''] = name.split(' ');
    expect(page).toMatch(new RegExp(`\`${first}\\b[^|]*${second}|\`agent-host ${first}`));
  }
});
