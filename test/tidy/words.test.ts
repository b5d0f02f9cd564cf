import { expect, test } from 'vitest';
import { committable, hits } from './tree.ts';

/**
 * Words of the field instead of those that made readers stop. What is written for people is held against it: sources and
 * their comments, the pages, and what is deployed. What was released stays as it was written (CHANGELOG.md).
 */
const files = committable().filter((file) => /^(src|docs|deploy)\/.*\.(ts|md|ya?ml|conf)$|^[A-Z]+\.md$/.test(file));
const written = files.filter((file) => file !== 'CHANGELOG.md');

/** A word, what to write instead, and where it stays: a name of the system, or one that the log holds. */
const REFUSED: readonly (readonly [pattern: RegExp, instead: string, allowed: RegExp | null])[] = [
  [/\bwhoever\b/i, 'the client, the worker, the caller: who it is', null],
  [/\bnobody\b/i, 'no worker, no client, not', /postgres-account\.ts|nobody-sells/],
  [/\banew\b/i, 'again, rebuild, restart', null],
  [/\b(goes|went) on\b/i, 'continues, keeps …ing', null],
  [/\b(lies?|lying) in\b/i, 'is in, is stored in', null],
  [/\btold of\b/i, 'called with, called for', null],
  [/(?<!there )\b(is|are) no (valid )?(JSON|HTTP|URL|cursor|text|lock|file)\b/, 'is not (a) …', null],
  [/\b(un)?bur(y|ied)\b/i, 'write a tombstone', null],
  [/(?<!')\bkeepers?\b/i, 'reconciler, supervisor', /actor: 'keeper'/],
  [/\b[A-Z]\w+Parts\b/, '…Deps for what a function is given', /\bResolvedParts\b/],
  [/(function|type|interface) shown[A-Z]\w*/i, 'to…Response, or what the view is', /ShownInteraction|ShownVault/],
  [/\bas nobody in particular\b/i, 'as non-root', null],
];

test.each(REFUSED)('%s is not written: %s', (pattern, _instead, allowed) => {
  const found = hits(written, pattern).filter((hit) => allowed === null || !allowed.test(hit));
  expect(found).toEqual([]);
});

test('the walk sees what is written', () => {
  expect(written.length).toBeGreaterThan(200);
});
