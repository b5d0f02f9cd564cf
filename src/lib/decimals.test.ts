import { expect, test } from 'vitest';
import { DecimalSum } from './decimals.ts';

function sumOf(...values: readonly number[]): string {
  const sum = new DecimalSum();
  for (const value of values) sum.add(value);
  return sum.toString();
}

test('decimals add up as they are written', () => {
  expect(sumOf()).toBe('0');
  expect(sumOf(0.1, 0.2)).toBe('0.3');
  expect(sumOf(1e-7, 1.5e-7, 2)).toBe('2.00000025');
  expect(sumOf(1e21, 0.5)).toBe('1000000000000000000000.5');
  expect(sumOf(0.000_123_456_789_012_345)).toBe('0.000123456789012345');
});

test('what was added can be taken away to the last digit', () => {
  const sum = new DecimalSum();
  for (const value of [0.1, 0.7, 3e-9]) sum.add(value);
  for (const value of [0.7, 3e-9]) sum.subtract(value);
  expect(sum.toString()).toBe('0.1');
  sum.subtract(0.3);
  expect(sum.toString()).toBe('-0.2');
});
