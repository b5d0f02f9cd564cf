import { expect, test } from 'vitest';
import { isUnavailable } from './pool.ts';

const withCode = (code: string): Error => Object.assign(new Error('failed'), { code });

test('what the system says of a connection is a database out of reach, however many letters it has', () => {
  const codes = ['EPIPE', 'ECONNREFUSED', 'ECONNRESET', 'EHOSTUNREACH'];
  expect(codes.filter((code) => !isUnavailable(withCode(code)))).toEqual([]);
});

test('what Postgres says passes by itself, or is a statement that is wrong', () => {
  const passing = ['08006', '53300', '57P03', '40001', '55P03', '58030', '3D000', '42P01'];
  const lasting = ['42601', '22P02', '23505', 'XX000', 'P0001'];
  expect([...passing, ...lasting].filter((code) => isUnavailable(withCode(code)))).toEqual(passing);
});
