import { existsSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { committable, hits, read, ROOT } from './tree.ts';

/** Nothing points at what is not there: a reader follows each reference to its end inside this repository. */

/** Put together from halves, or this test would find itself. */
const FOREIGN = [
  `${'anch'}ors/[a-z-]+\\.md`,
  `(${'wire'} contract|${'inter'}face specification|\\b${'des'}ign), (section|promise)`,
  `\\.\\./${'sha'}red\\b`,
  `/${'wor'}k/${'sha'}red`,
];
const isText = (file: string) =>
  /\.(ts|mjs|cjs|json|md|ya?ml|sql|conf|cfg|sh)$/.test(file) && file !== 'package-lock.json';
const files = committable().filter(isText);
const pages = files.filter((file) => file.endsWith('.md'));

/** Headings of a page as GitHub turns them into anchors. */
function anchorsOf(page: string): Set<string> {
  const headings = read(page).matchAll(/^#{1,6} (.+)$/gm);
  return new Set([...headings].map(([, heading = '']) => anchorOf(heading)));
}

function anchorOf(heading: string): string {
  const plain = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
  return plain.replaceAll(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-');
}

/** Null when the target is there, else what is missing. */
function missing(from: string, target: string): string | null {
  const [file = '', anchor] = target.split('#');
  const to = file === '' ? from : path.posix.normalize(path.posix.join(path.posix.dirname(from), file));
  if (!existsSync(path.join(ROOT, to))) return `${from}: no file ${target}`;
  if (anchor === undefined || !to.endsWith('.md') || anchorsOf(to).has(anchor)) return null;
  return `${from}: no heading ${target}`;
}

describe('references', () => {
  test('nothing cites a document that is not in the repository', () => {
    expect(hits(files, new RegExp(FOREIGN.join('|'), 'i'))).toEqual([]);
  });

  test('every link of a page leads to a file and a heading', () => {
    const found = pages.flatMap((page) =>
      [...read(page).matchAll(/\]\((?!https?:|mailto:)([^)\s]+)\)/g)].map(([, target = '']) => missing(page, target)),
    );
    expect(found.length).toBeGreaterThan(50);
    expect(found.filter((one) => one !== null)).toEqual([]);
  });

  test('every page that code, configuration and scripts name is there, with its heading', () => {
    const found = files.flatMap((file) =>
      [...read(file).matchAll(/(?<![\w/.-])docs\/[\w/-]+\.md(?:#[\w-]+)?/g)].flatMap(([target]) => {
        const problem = missing('README.md', target);
        return problem === null ? [] : [`${file} → ${problem}`];
      }),
    );
    expect(found).toEqual([]);
  });

  test('every path in backticks on a page is there', () => {
    const found = pages
      .filter((page) => page !== 'CHANGELOG.md' && !page.startsWith('docs/decisions/'))
      .flatMap((page) =>
        [...read(page).matchAll(/`((?:src|test|bench|scripts|deploy|migrations|docs)\/[\w./-]*)`/g)].flatMap(
          ([, name = '']) => (existsSync(path.join(ROOT, name)) ? [] : [`${page}: no ${name}`]),
        ),
      );
    expect(found).toEqual([]);
  });
});
