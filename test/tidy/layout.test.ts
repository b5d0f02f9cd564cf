import { expect, test } from 'vitest';
import { committable, importsOf, read, sources, topLevelOfSrc } from './tree.ts';

/** The folders of src, as AGENTS.md names them. A new one is a decision, not an accident. */
const FOLDERS = [
  ...['app', 'archive', 'auth', 'cli', 'client', 'commands', 'console', 'domain', 'drivers', 'embedded'],
  ...['engine', 'http', 'in-memory', 'lib', 'projections', 'react', 'streams'],
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
      .filter((specifier) => specifier.startsWith('.') && !/\.(tsx?|json|css)$/.test(specifier))
      .map((specifier) => `${file} imports ${specifier}`),
  );
  expect(wrong).toEqual([]);
});

test('every example has a page of its own, and a test runs it', () => {
  const files = committable().filter((file) => file.startsWith('examples/'));
  const folders = [...new Set(files.map((file) => file.split('/')[1] ?? ''))];
  expect(folders.length).toBeGreaterThan(0);
  const run = read('test/e2e/examples.test.ts') + read('test/e2e/react-page.test.ts');
  expect(folders.filter((name) => !files.includes(`examples/${name}/README.md`) || !run.includes(name))).toEqual([]);
});

function isOfTheDomain(file: string, specifier: string): boolean {
  if (['zod', 'ajv', 'ajv/dist/2020.js', 'ajv-formats', 're2js'].includes(specifier)) return true;
  if (!specifier.startsWith('.')) return false;
  return new URL(specifier, `file:///${file}`).pathname.startsWith('/src/domain/');
}
