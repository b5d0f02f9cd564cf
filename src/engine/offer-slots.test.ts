import { expect, test } from 'vitest';
import { OfferSlots, SLOTS_PER_TENANT } from './offer-slots.ts';

test('a tenant with much to offer is offered so much at a time, the others in the order in which they came', () => {
  const slots = new OfferSlots<number>();
  const offered = Array.from({ length: 200 }, (_, n) => n).filter((n) => slots.acquire(n, 'busy', 'run'));
  expect(offered).toEqual(Array.from({ length: SLOTS_PER_TENANT }, (_, n) => n));
  expect(slots.acquire(1_000, 'other', 'run')).toBe(true);
  expect(slots.acquire(1_001, 'busy', 'deadline')).toBe(true);
  slots.release(3);
  expect(slots.nextGranted).toBe(SLOTS_PER_TENANT);
  expect(slots.acquire(SLOTS_PER_TENANT, 'busy', 'run')).toBe(true);
  expect(slots.nextGranted).toBeNull();
});

test('one that has had its slot goes behind those that wait; alone it keeps it', () => {
  const slots = new OfferSlots<number>();
  for (let n = 0; n < SLOTS_PER_TENANT; n++) slots.acquire(n, 'busy', 'run');
  expect(slots.acquire(0, 'busy', 'run')).toBe(true);
  expect(slots.acquire(500, 'busy', 'run')).toBe(false);
  expect(slots.acquire(0, 'busy', 'run')).toBe(false);
  expect(slots.nextGranted).toBe(500);
  // What waits and is over by time is offered apart from what wants a worker.
  expect(slots.acquire(0, 'busy', 'deadline')).toBe(true);
  slots.release(500);
  expect(slots.nextGranted).toBeNull();
});
