import { expect, test } from 'vitest';
import { importsOf, sources, topLevelOfSrc } from './tree.ts';

/** The folders of src, as AGENTS.md names them. A new one is a decision, not an accident. */
const FOLDERS = [
  ...['app', 'archive', 'auth', 'cli', 'client', 'commands', 'domain', 'drivers', 'embedded', 'engine', 'http', 'lib'],
  ...['projections', 'streams'],
];
const ENTRIES = ['main.ts'];

const isTest = (file: string) => file.endsWith('.test.ts');

test('src holds the folders that AGENTS.md names and the entry file', () => {
  expect(topLevelOfSrc().filter((name) => !FOLDERS.includes(name) && !ENTRIES.includes(name))).toEqual([]);
});

test('the domain imports the domain, zod and a pure validator of JSON Schema', () => {
  const files = sources('src/domain').filter((file) => !isTest(file));
  const foreign = files.flatMap((file) =>
    importsOf(file)
      .filter((specifier) => !isOfTheDomain(file, specifier))
      .map((specifier) => `${file} imports ${specifier}`),
  );
  expect(foreign).toEqual([]);
});

test('relative imports inside src name the file with its ending', () => {
  const wrong = sources('src').flatMap((file) =>
    importsOf(file)
      .filter((specifier) => specifier.startsWith('.') && !/\.(ts|json)$/.test(specifier))
      .map((specifier) => `${file} imports ${specifier}`),
  );
  expect(wrong).toEqual([]);
});

function isOfTheDomain(file: string, specifier: string): boolean {
  if (['zod', 'ajv', 'ajv/dist/2020.js', 'ajv-formats', 're2js'].includes(specifier)) return true;
  if (!specifier.startsWith('.')) return false;
  return new URL(specifier, `file:///${file}`).pathname.startsWith('/src/domain/');
}
