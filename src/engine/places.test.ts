import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Places } from './places.ts';
import type { Place } from './places.ts';

const limits = fc
  .record({ total: fc.integer({ min: 1, max: 300 }), part: fc.double({ min: 0, max: 1, noNaN: true }) })
  .map(({ total, part }) => ({ total, perTenant: Math.max(1, Math.ceil(total * part)) }));

function takeAll(places: Places, tenant: string): Place[] {
  const taken: Place[] = [];
  for (let place = places.reserve(tenant); place !== null; place = places.reserve(tenant)) taken.push(place);
  return taken;
}

test('a tenant alone gets its share, to the place, and the next to come finds one', () => {
  fc.assert(
    fc.property(limits, ({ total, perTenant }) => {
      const places = new Places({ total, perTenant }, () => undefined);
      expect(takeAll(places, 'greedy')).toHaveLength(perTenant);
      expect(places.isOpenTo('other')).toBe(perTenant < total);
    }),
  );
});

test('tenants that take all they can, one after the other, leave a place each for many more', () => {
  const places = new Places({ total: 256, perTenant: 192 }, () => undefined);
  const held = Array.from({ length: 25 }, (_, n) => takeAll(places, `tn_${n}`).length);
  expect(held.slice(0, 5)).toEqual([192, 39, 8, 1, 1]);
  expect(held.filter((count) => count > 0)).toHaveLength(20);
});

test('no more are reserved than there are, however they are taken and given back, and all come back', () => {
  const step = fc.record({ tenant: fc.integer({ min: 0, max: 4 }), free: fc.boolean() });
  fc.assert(
    fc.property(limits, fc.array(step, { maxLength: 500 }), ({ total, perTenant }, steps) => {
      let freed = 0;
      const places = new Places({ total, perTenant }, () => freed++);
      const held: Place[] = [];
      for (const { tenant, free } of steps) {
        const place = free ? held.shift() : null;
        place?.free();
        // A second time it has no holder.
        place?.free();
        const next = places.reserve(`tn_${tenant}`);
        if (next !== null) held.push(next);
        expect(held.length).toBeLessThanOrEqual(total);
      }
      for (const place of held) place.free();
      expect(takeAll(places, 'last')).toHaveLength(perTenant);
    }),
  );
});
