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
    const own = /agent-host [^|>]*/.exec(example)?.[0] ?? '';
    const args = [...own.slice(`agent-host ${name}`.length).matchAll(/"[^"]*"|'[^']*'|\S+/g)].map(([word]) => word);
    // Strict: an option that it has not, one without its value and a value that it takes none of are refused.
    expect(() => parseArgs({ args, options, allowPositionals: true }), example).not.toThrow();
    for (const flag of args.filter((word) => word.startsWith('--'))) expect(helpOf(name)).toContain(flag);
  }
});

const without = (option: string): readonly string[] =>
  commandNames().filter((name) => !Object.hasOwn(entryOf(name)?.options ?? {}, option));

test('every command that gives something gives it as JSON too', () => {
  expect(without('json')).toEqual(['up', 'completion', 'help']);
});

test('every command that calls a Host for a tenant takes a context, as the page about the terminal says', () => {
  const others = without('context').filter((name) => Object.hasOwn(CALLER_COMMANDS, name));
  expect(others).toEqual(['context list', 'context show', 'context use', 'context remove', 'completion', 'help']);
});

test.each([
  ['agent-host capacity --second 30', 'capacity'],
  ['agent-host audit replay --until', 'audit replay'],
])('%s would be found', (line, name) => {
  const args = line.split(' ').slice(name.split(' ').length + 1);
  expect(() => parseArgs({ args, options: entryOf(name)?.options ?? {}, allowPositionals: true })).toThrow(/option/i);
});

test('the overview fits, and the page about the terminal names every command of a caller', () => {
  for (const line of overview().split('\n')) expect(line.length).toBeLessThanOrEqual(120);
  const page = readFileSync(new URL('../../../docs/cli.md', import.meta.url), 'utf8');
  for (const name of Object.keys(CALLER_COMMANDS)) {
    const [first = '', second = ''] = name.split(' ');
    // In a row of a table, by the first word or as one of its others; or with the name of the program.
    const row = page
      .split('\n')
      .find((line) => line.startsWith('| ') && line.includes(`\`${first}`) && line.includes(second));
    expect(row ?? (page.includes(`agent-host ${name}`) || null), name).not.toBeNull();
  }
});
