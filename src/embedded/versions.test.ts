import { expect, test } from 'vitest';
import { compareVersions, formatVersion, parseVersion } from './versions.ts';

function version(text: string): NonNullable<ReturnType<typeof parseVersion>> {
  const parsed = parseVersion(text);
  if (parsed === undefined) throw new Error(`no version in ${text}`);
  return parsed;
}

test.each([
  ['nats-server: v2.15.1\n', '2.15.1'],
  ['nats-server: v2.12.0-RC.1', '2.12.0-RC.1'],
  ['2.10.27', '2.10.27'],
])('finds the version in %j', (text, expected) => {
  expect(formatVersion(version(text))).toBe(expected);
});

test.each(['', 'nats-server: dev', 'v2.15'])('finds none in %j', (text) => {
  expect(parseVersion(text)).toBeUndefined();
});

test('orders by number, and a pre-release before its release', () => {
  const ordered = ['2.9.30', '2.10.27', '2.12.0-RC.1', '2.12.0-RC.2', '2.12.0', '2.12.1', '3.0.0'].map(version);
  for (const [index, left] of ordered.entries()) {
    for (const [otherIndex, right] of ordered.entries()) {
      expect(Math.sign(compareVersions(left, right))).toBe(Math.sign(index - otherIndex));
    }
  }
});
