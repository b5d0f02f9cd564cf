import { expect, test } from 'vitest';
import { newId } from './ids.ts';

const ALPHABET = '0123456789abcdefghjkmnpqrstvwxyz';

const timeOf = (id: string): number =>
  [...id.slice(3, 13)].reduce((time, char) => time * 32 + ALPHABET.indexOf(char), 0);

test('a prefix and a lower-case ULID that tells the time', () => {
  const before = Date.now();
  const id = newId('tn');
  expect(id).toMatch(/^tn_[0-7][0-9a-hjkmnp-tv-z]{25}$/);
  expect(timeOf(id)).toBeGreaterThanOrEqual(before);
  expect(timeOf(id)).toBeLessThanOrEqual(Date.now());
});

test('a hundred thousand at once are different, and their random part is never counted up', () => {
  const ids = Array.from({ length: 100_000 }, () => newId('ev'));
  expect(new Set(ids).size).toBe(ids.length);
  expect(new Set(ids.map((id) => id.slice(13))).size).toBe(ids.length);
  const rising = ids.filter((id, n) => n > 0 && id.slice(13) > (ids[n - 1] ?? '').slice(13)).length;
  expect(rising / ids.length).toBeGreaterThan(0.48);
  expect(rising / ids.length).toBeLessThan(0.52);
});

test('every place of the random part takes every character about equally often', () => {
  const count = 32_000;
  const ids = Array.from({ length: count }, () => newId('ev').slice(13));
  for (let place = 0; place < 16; place++) {
    const seen = Map.groupBy(ids, (id) => id.charAt(place));
    expect(seen.size).toBe(32);
    // 1,000 expected, with a deviation of 31.
    for (const { length } of seen.values()) expect(Math.abs(length - count / 32)).toBeLessThan(220);
  }
});

test('later ids sort after earlier ones', async () => {
  const first = newId('tu');
  const second = await new Promise<string>((resolve) => {
    const look = (): void => {
      const id = newId('tu');
      if (timeOf(id) > timeOf(first)) resolve(id);
      else setImmediate(look);
    };
    look();
  });
  expect(second > first).toBe(true);
});
