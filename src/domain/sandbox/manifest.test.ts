import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  EMPTY_MANIFEST,
  fileAt,
  filesBelow,
  isDirectory,
  isFault,
  manifestOf,
  sameManifest,
  withFile,
  withoutPath,
  WORKSPACE_LIMITS,
  workspaceManifest,
} from './manifest.ts';
import type { WorkspaceFile, WorkspaceManifest } from './manifest.ts';
import { foldedPath, parentsOf, pathFault, resolvePath, utf8Bytes } from './paths.ts';

const SHA = 'a'.repeat(64);
const file = (path: string, size = 1): WorkspaceFile => ({ path, sha256: SHA, size, mode: 0o644 });

function made(paths: readonly string[], directories: readonly string[] = []): WorkspaceManifest {
  const manifest = manifestOf(
    paths.map((path) => file(path)),
    directories,
    WORKSPACE_LIMITS,
  );
  if (isFault(manifest)) throw new Error(manifest.message);
  return manifest;
}

function fault(paths: readonly string[], directories: readonly string[] = []) {
  return manifestOf(
    paths.map((path) => file(path)),
    directories,
    WORKSPACE_LIMITS,
  );
}

describe('a manifest', () => {
  test('is the same whatever order it is made in, and as its schema says', () => {
    const manifest = made(['b', 'a/x', 'a.b', 'a/b/c'], ['e', 'a/b', 'e/f']);
    expect(manifest.files.map(({ path }) => path)).toEqual(['a.b', 'a/b/c', 'a/x', 'b']);
    expect(manifest.directories).toEqual(['e/f']);
    expect(workspaceManifest.parse(manifest)).toEqual(manifest);
    expect(sameManifest(manifest, made(['a/b/c', 'a.b', 'a/x', 'b'], ['e/f']))).toBe(true);
    expect(sameManifest(manifest, made(['a/b/c', 'a.b', 'a/x', 'b']))).toBe(false);
  });

  test('finds its files and directories', () => {
    const manifest = made(['a/x', 'a.b', 'c'], ['d/e']);
    expect(fileAt(manifest, 'a/x')).toEqual(file('a/x'));
    expect(fileAt(manifest, 'a')).toBeUndefined();
    expect(['', 'a', 'd', 'd/e'].filter((path) => !isDirectory(manifest, path))).toEqual([]);
    expect(['c', 'a/x', 'a.', 'd/e/f'].filter((path) => isDirectory(manifest, path))).toEqual([]);
    expect(filesBelow(manifest, 'a').map(({ path }) => path)).toEqual(['x']);
    expect(filesBelow(manifest, '')).toBe(manifest.files);
  });

  test('keeps what a file was alone in, once it is gone', () => {
    expect(withoutPath(made(['a/b/c', 'd']), 'a/b/c')).toEqual(made(['d'], ['a/b']));
    expect(withoutPath(made(['a/b/c', 'd']), 'a')).toEqual(made(['d']));
    expect(withFile(made(['d'], ['a/b']), file('a/b/c'), WORKSPACE_LIMITS)).toEqual(made(['a/b/c', 'd']));
  });

  test.each([
    ['two spellings', ['a/B', 'a/b'], []],
    ['two spellings of a directory', ['A/x', 'a/y'], []],
    ['two Unicode forms', ['caf\u00e9', 'cafe\u0301'], []],
    ['a file and a directory', ['a', 'a/b'], []],
    ['a file in a file', ['a/b', 'a'], []],
    ['a file and an empty directory', ['a'], ['a']],
    ['the same twice', ['a', 'a'], []],
    ['a path that leads out', ['../a'], []],
    ['an absolute path', ['/a'], []],
    ['a NUL', ['a\u0000b'], []],
    ['a line', ['a\nb'], []],
    ['a lone surrogate', ['a\ud800'], []],
    ['a long name', ['x'.repeat(256)], []],
    ['a long path', [Array.from({ length: 6 }, () => 'x'.repeat(200)).join('/')], []],
    ['a deep path', ['d/'.repeat(64) + 'f'], []],
  ])('refuses %s', (_, paths, directories) => {
    expect(fault(paths, directories)).toMatchObject({ code: 'invalid_path' });
  });

  test('refuses more than it may hold, and says which limit it is', () => {
    const limits = { files: 3, fileBytes: 10, totalBytes: 15 };
    expect(manifestOf([file('a', 11)], [], limits)).toMatchObject({ message: expect.stringContaining('10 at most') });
    expect(manifestOf([file('a', 8), file('b', 8)], [], limits)).toMatchObject({
      message: expect.stringContaining('15'),
    });
    expect(manifestOf([file('a'), file('b'), file('c')], ['d'], limits)).toMatchObject({
      message: expect.stringContaining('3 files'),
    });
    const deep = Array.from({ length: 3 }, (_, n) => file(`${n}/${'d/'.repeat(20)}f`));
    expect(manifestOf(deep, [], limits)).toMatchObject({ code: 'limit_exceeded' });
  });

  test('of 10,000 files that are as deep as they may be is checked in bounded work', () => {
    const files = Array.from({ length: 10_000 }, (_, n) => file(`${n}/${'d/'.repeat(60)}f`));
    expect(manifestOf(files, [], WORKSPACE_LIMITS)).toMatchObject({ code: 'limit_exceeded' });
  });

  test('holds any paths that are fit and apart, however they come', () => {
    const name = fc.stringMatching(/^[a-z]{1,3}$/);
    const path = fc.array(name, { minLength: 1, maxLength: 3 }).map((names) => names.join('/'));
    fc.assert(
      fc.property(fc.uniqueArray(path, { maxLength: 12 }), (paths) => {
        const apart = paths.filter((each) => !paths.some((other) => other.startsWith(`${each}/`)));
        const manifest = made(apart);
        expect(manifest.files.map((each) => each.path)).toEqual(apart.toSorted());
        for (const each of apart) {
          expect(fileAt(manifest, each)?.path).toBe(each);
          for (const parent of parentsOf(each)) expect(isDirectory(manifest, parent)).toBe(true);
        }
        expect(apart.reduce(withoutPath, manifest).files).toEqual(EMPTY_MANIFEST.files);
      }),
    );
  });
});

describe('a path that is written by others', () => {
  test.each([
    ['a', 'a'],
    ['/workspace/a/b', 'a/b'],
    ['./a//b/', 'a/b'],
    ['/workspace', ''],
    ['/workspace/', ''],
    ['.', ''],
    ['', ''],
  ])('%j means %j', (text, path) => {
    expect(resolvePath(text)).toEqual({ ok: true, path });
  });

  test.each([
    '..',
    'a/..',
    '/workspace/../etc',
    '/etc',
    '/workspaces',
    '/Workspace/a',
    'a\\b',
    'a\u2028b',
    'x/'.repeat(3_000),
  ])('%j means nothing', (text) => {
    expect(resolvePath(text)).toMatchObject({ ok: false, reason: expect.stringMatching(/\w/) });
  });

  test('never leads out of the workspace, whatever it is', () => {
    const piece = fc.constantFrom('..', '.', '/', 'a', 'workspace', '\\', '\u0000', '~', '%2e');
    fc.assert(
      fc.property(fc.array(fc.oneof(piece, fc.string()), { maxLength: 12 }), (pieces) => {
        const resolved = resolvePath(pieces.join('/'));
        expect(resolved.ok && resolved.path !== '' ? pathFault(resolved.path) : null).toBeNull();
      }),
    );
  });

  test('is as long as its UTF-8', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (text) => {
        expect(utf8Bytes(text)).toBe(new TextEncoder().encode(text).byteLength);
      }),
    );
    expect(foldedPath('STRASSE')).toBe(foldedPath('straße'));
  });
});
