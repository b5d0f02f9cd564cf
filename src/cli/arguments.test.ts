import { expect, test } from 'vitest';
import { readArguments } from './arguments.ts';

const OPTIONS = {
  key: { type: 'string' },
  label: { type: 'string', multiple: true },
  out: { type: 'string', short: 'o' },
  json: { type: 'boolean' },
  yes: { type: 'boolean', short: 'y' },
} as const;

test('an option takes the word after it as its value, whatever it begins with', () => {
  for (const value of ['-AUeH4P', '--AUeH4P', '-', 'AUeH4P', '', '-k', '--keys']) {
    const { values, words } = readArguments(['a', '--key', value, 'b', '--json'], OPTIONS);
    expect([values, words], value).toEqual([{ key: value, json: true }, ['a', 'b']]);
    expect(readArguments([`--key=${value}`], OPTIONS).values, value).toEqual({ key: value });
  }
  expect(readArguments(['--label', '-a', '--label', '-b'], OPTIONS).values).toEqual({ label: ['-a', '-b'] });
  expect(readArguments(['-o', '-x', '-y'], OPTIONS).values).toEqual({ out: '-x', yes: true });
  expect(readArguments(['--out', '-'], OPTIONS).values).toEqual({ out: '-' });
});

test('what has the name of another option is no value', () => {
  for (const next of ['--json', '--label', '--label=x', '-y', '-o', '--']) {
    expect(() => readArguments(['--key', next], OPTIONS), next).toThrow(/key.*agent-host help/s);
  }
  expect(() => readArguments(['--key'], OPTIONS)).toThrow(/key/);
});

test('an option that takes no value, and words after a double dash, are as they were written', () => {
  expect(() => readArguments(['--json', '-x'], OPTIONS)).toThrow(/-x/);
  expect(readArguments(['--', '--key', '-x'], OPTIONS)).toEqual({ values: {}, words: ['--key', '-x'] });
});
