import { existsSync, readdirSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { committable, hits, read, ROOT, sources } from './tree.ts';

const LINES_MAX = 400;
/** Put together from halves, or these tests would find themselves. */
const word = (...parts: string[]) => parts.join('');

describe('files', () => {
  const code = sources('src', 'test', 'bench', 'examples');

  test('the walk sees code at all', () => {
    expect(code.length).toBeGreaterThan(5);
  });

  test(`no file is longer than ${LINES_MAX} lines`, () => {
    const long = code.filter((file) => read(file).trimEnd().split('\n').length > LINES_MAX);
    expect(long).toEqual([]);
  });

  test('nothing is left to be done later', () => {
    const marks = [word('TO', 'DO'), word('FIX', 'ME'), word('X', 'XX'), word('HA', 'CK')];
    expect(hits(code, new RegExp(`\\b(${marks.join('|')})\\b`))).toEqual([]);
    expect(hits(code, new RegExp(word('\\bnot ', 'implemented\\b'), 'i'))).toEqual([]);
  });

  test('no test is skipped, singled out or only planned', () => {
    const pattern = new RegExp(
      `\\b(it|test|describe|suite)\\.(${['sk' + 'ip', 'on' + 'ly', 'to' + 'do'].join('|')})\\b`,
    );
    expect(hits(code, pattern)).toEqual([]);
  });
});

describe('what is committed', () => {
  const text = committable().filter((file) => !/\.(png|jpe?g|gif|ico|pdf|zip|gz|woff2?)$/.test(file));

  test('names no path of a machine', () => {
    expect(hits(text, machinePaths())).toEqual([]);
  });

  test('names no package registry', () => {
    const resolved = new RegExp(word('"resolved"', ':\\s*"http'));
    const setting = /^\s*(@[\w-]+:)?registry\s*=/;
    expect(hits(text, resolved)).toEqual([]);
    expect(hits(text, setting)).toEqual([]);
  });

  test('holds no private key', () => {
    expect(hits(text, new RegExp(word('-----BEGIN ', '([A-Z]+ )?PRIVATE KEY-----')))).toEqual([]);
  });
});

/**
 * Home directories of people, this checkout, and the folders beside it. Folders beside it say nothing where the checkout
 * lies in a place that programs use too (the temporary directory, the root of a container).
 */
function machinePaths(): RegExp {
  const parent = path.dirname(ROOT);
  const shared = new Set(['/', '/opt', '/srv', '/usr/src', '/home', path.resolve(os.tmpdir())]);
  const beside = shared.has(parent)
    ? []
    : readdirSync(parent, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => path.join(parent, entry.name));
  const here = ROOT.split(path.sep).length > 2 ? [ROOT] : [];
  const literal = [...here, ...beside].map((folder) => folder.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  const homes = ['/home/(?!node\\b)[a-z][\\w-]*/', '/Users/\\w+/', 'C:\\\\Users\\\\', '(^|[\\s"\'`=(])/root/'];
  return new RegExp(`(${[...literal, ...homes].join('|')})(?![\\w-])|(${homes.join('|')})`);
}

test('the ground files are there', () => {
  const ground = ['LICENSE', 'AGENTS.md', 'package.json', 'package-lock.json', '.ci/run', 'scripts/run.mjs'];
  expect(ground.filter((file) => !existsSync(path.join(ROOT, file)))).toEqual([]);
});
