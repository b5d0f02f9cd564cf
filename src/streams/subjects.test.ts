import fc from 'fast-check';
import { expect, test } from 'vitest';
import { decodeCursor, encodeCursor } from './cursor.ts';
import { bucketOf, escapeToken, refOfSubject, subjectOf, unescapeToken } from './subjects.ts';

test('any text becomes one legal token and comes back', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'grapheme', minLength: 1 }), (text) => {
      const token = escapeToken(text);
      expect(token).toMatch(/^[A-Za-z0-9_=-]+$/);
      expect(unescapeToken(token)).toBe(text);
    }),
  );
});

test('a subject names its aggregate, and its bucket never changes', () => {
  const ref = { tenant: 'tn_01arz3ndektsv4rrffq69g5fav', kind: 'session', id: 'users/ada.l/1' } as const;
  expect(subjectOf(ref)).toBe('evt.35.tn_01arz3ndektsv4rrffq69g5fav.session.users=2fada=2el=2f1');
  expect(refOfSubject(subjectOf(ref))).toEqual(ref);
  expect(bucketOf(ref)).toBe(35);
});

test('a cursor comes back for its own session, and for no other', () => {
  const ref = { tenant: 'tn_a', kind: 'session', id: 's1' } as const;
  fc.assert(
    fc.property(fc.nat(255), fc.nat(2 ** 31), fc.nat(65_535), (shard, position, index) => {
      const cursor = encodeCursor(ref, { shard, position, index });
      expect(decodeCursor(ref, cursor)).toEqual({ shard, position, index });
      expect(decodeCursor({ ...ref, id: 's2' }, cursor)).toBeNull();
      expect(decodeCursor({ ...ref, tenant: 'tn_b' }, cursor)).toBeNull();
    }),
  );
});

test('a cursor of an inherited place says of which part, and of which fork', () => {
  const ref = { tenant: 'tn_a', kind: 'session', id: 's1' } as const;
  fc.assert(
    fc.property(fc.nat(255), fc.nat(2 ** 31), fc.nat(65_535), fc.nat(2 ** 31), (small, position, index, created) => {
      const inherited = { ancestor: small, createdPosition: created };
      const place = { shard: small, position, index, inherited };
      const cursor = encodeCursor(ref, place);
      expect(decodeCursor(ref, cursor)).toEqual(place);
      expect(decodeCursor({ ...ref, id: 's2' }, cursor)).toBeNull();
      expect(decodeCursor(ref, cursor.slice(0, 20))).toBeNull();
      expect(cursor).not.toBe(encodeCursor(ref, { shard: small, position, index }));
    }),
  );
});

test.each(['', 'x', '0', 'latest', '../../etc', 'A'.repeat(20), 'A'.repeat(500), 'ä'.repeat(20)])(
  '%j is not a cursor',
  (text) => {
    expect(decodeCursor({ tenant: 'tn_a', kind: 'session', id: 's1' }, text)).toBeNull();
  },
);
