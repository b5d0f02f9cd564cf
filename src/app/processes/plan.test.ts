import { expect, test } from 'vitest';
import { ROLES } from '../roles.ts';
import { planOf, processesByDefault } from './plan.ts';

test('by default as many as the cores, but one; one alone where there is nothing to win', () => {
  const byCores = [1, 2, 3, 4, 8, 9, 64].map((cores) => processesByDefault(cores, ROLES));
  expect(byCores).toEqual([1, 1, 1, 3, 7, 8, 8]);
  expect(processesByDefault(8, ['projector'])).toBe(1);
  expect(processesByDefault(8, ['engine'])).toBe(7);
});

test('one process projects; it serves requests only where one other would be left', () => {
  expect(planOf(1, ROLES)).toEqual([{ number: 1, roles: ROLES, isServing: true }]);
  const others = ['commands', 'reads', 'engine'];
  expect(planOf(2, ROLES)).toEqual([
    { number: 1, roles: others, isServing: true },
    { number: 2, roles: ROLES, isServing: true },
  ]);
  expect(planOf(3, ROLES)).toEqual([
    { number: 1, roles: others, isServing: true },
    { number: 2, roles: others, isServing: true },
    { number: 3, roles: ['projector'], isServing: false },
  ]);
});

test('roles that are named stay those of the whole', () => {
  expect(planOf(3, ['commands', 'reads']).map(({ roles }) => roles)).toEqual([
    ['commands', 'reads'],
    ['commands', 'reads'],
    ['commands', 'reads'],
  ]);
  expect(planOf(2, ['projector']).map(({ roles, isServing }) => [roles, isServing])).toEqual([
    [['projector'], true],
    [['projector'], true],
  ]);
});
