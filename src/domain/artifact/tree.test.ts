import fc from 'fast-check';
import { expect, test } from 'vitest';
import { treePath } from './names.ts';
import { clashingPath, diffTrees } from './tree.ts';
import type { FileEntry } from './tree.ts';

const entry = (path: string, sha256 = 'a', contentType = 'text/plain'): FileEntry => ({
  path,
  size: sha256.length,
  sha256,
  contentType,
});

const segment = fc.string({ minLength: 1, maxLength: 3, unit: fc.constantFrom('a', 'b', 'Z', 'ä', '文', '-', ' ') });
const path = fc.array(segment, { minLength: 1, maxLength: 3 }).map((segments) => segments.join('/'));
const tree = fc.dictionary(path, fc.tuple(fc.constantFrom('x', 'y', 'z'), fc.constantFrom('text/plain', 'image/png')), {
  maxKeys: 12,
});
type Model = Record<string, [string, string]>;
const filesOf = (model: Model): FileEntry[] =>
  Object.entries(model).map(([name, [sha256, type]]) => entry(name, sha256, type));

test('a diff is what a comparison of two plain maps says, whatever the order of the files', () => {
  fc.assert(
    fc.property(tree, tree, fc.integer(), (before, after, seed) => {
      const shuffled = filesOf(after).toSorted((a, b) => ((a.path.length * seed) % 7) - ((b.path.length * seed) % 7));
      const { added, removed, changed } = diffTrees(filesOf(before), shuffled);
      const sorted = (names: string[]): string[] => names.toSorted((a, b) => (a < b ? -1 : 1));
      const names = { before: Object.keys(before), after: Object.keys(after) };
      expect(added.map((file) => file.path)).toEqual(sorted(names.after.filter((name) => !(name in before))));
      expect(removed.map((file) => file.path)).toEqual(sorted(names.before.filter((name) => !(name in after))));
      const both = sorted(names.after.filter((name) => name in before));
      const differing = both.filter((name) => String(before[name]) !== String(after[name]));
      expect(changed.map((change) => change.path)).toEqual(differing);
      for (const change of changed) {
        expect([change.from, change.to]).toEqual([
          entry(change.path, ...(before[change.path] as [string, string])),
          entry(change.path, ...(after[change.path] as [string, string])),
        ]);
      }
    }),
    { numRuns: 500 },
  );
});

test('applying a diff to the old tree gives the new one; there and back is nothing', () => {
  fc.assert(
    fc.property(tree, tree, (before, after) => {
      const { added, removed, changed } = diffTrees(filesOf(before), filesOf(after));
      const result = new Map(filesOf(before).map((file) => [file.path, file]));
      for (const file of removed) expect(result.delete(file.path)).toBe(true);
      for (const file of [...added, ...changed.map(({ to }) => to)]) result.set(file.path, file);
      expect(diffTrees([...result.values()], filesOf(after))).toEqual({ added: [], removed: [], changed: [] });
      expect(result.size).toBe(Object.keys(after).length);
      const back = diffTrees(filesOf(after), filesOf(before));
      expect([back.added, back.removed]).toEqual([removed, added]);
    }),
  );
});

test('a path that is a file and a folder, or named twice, is found', () => {
  const at = (...paths: string[]) => clashingPath(paths.map((one) => ({ path: one })));
  expect(at()).toBeNull();
  expect(at('a', 'b/c', 'b/d', 'ab')).toBeNull();
  expect(at('a/b/c', 'a')).toBe('a');
  expect(at('a/b/c', 'a/b')).toBe('a/b');
  expect(at('x', 'y', 'x')).toBe('x');
});

test('paths of every script are taken, those that lead elsewhere are not', () => {
  for (const good of [
    'a',
    'a/b.txt',
    'отчёт/данные.csv',
    '報告書/図 1.png',
    'تقرير',
    '👩‍👩‍👧/🎉',
    '...',
    '.hidden',
    'a'.repeat(1_024),
  ]) {
    expect(treePath.safeParse(good).success, good).toBe(true);
  }
  const bad = [
    '',
    '/',
    '/a',
    'a/',
    'a//b',
    '.',
    '..',
    'a/../b',
    './a',
    'a\\b',
    'a\0',
    'a\nb',
    'a\rb',
    'a\u2028b',
    '\ud800',
  ];
  for (const one of [...bad, 'a'.repeat(1_025)])
    expect(treePath.safeParse(one).success, JSON.stringify(one)).toBe(false);
});
