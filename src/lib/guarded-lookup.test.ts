import { expect, test } from 'vitest';
import { egressPolicy } from './egress.ts';
import { AddressRefusedError, guardedLookup } from './guarded-lookup.ts';

const POLICY = egressPolicy('public,loopback');

type Answer = readonly [error: Error | null, address: unknown, family?: number | undefined];

async function look(hostname: string, addresses: readonly string[], all: boolean): Promise<Answer> {
  const found = addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 }));
  const lookup = guardedLookup(POLICY, (_hostname, _options, callback) => callback(null, found));
  return await new Promise<Answer>((resolve) =>
    lookup(hostname, { all }, (error, address, family) => resolve([error, address, family])),
  );
}

test('gives what a name stands for in the form that was asked for', async () => {
  const both = ['93.184.216.34', '2606:2800::1'];
  expect(await look('models.example', both, false)).toEqual([null, '93.184.216.34', 4]);
  const [, all] = await look('models.example', both, true);
  expect(all).toEqual([
    { address: '93.184.216.34', family: 4 },
    { address: '2606:2800::1', family: 6 },
  ]);
  for (const here of ['localhost', 'localhost.']) {
    expect(await look(here, ['127.0.0.1', '::1'], false)).toEqual([null, '127.0.0.1', 4]);
  }
});

test('gives nothing of a name that stands for an address which may not be called', async () => {
  for (const addresses of [
    ['169.254.169.254'],
    ['93.184.216.34', '169.254.169.254'],
    ['::ffff:169.254.169.254'],
    ['fd00:ec2::254'],
    ['93.184.216.34', '64:ff9b::a9fe:a9fe'],
    ['127.0.0.1'],
    ['10.0.0.1'],
    ['93.184.216.34', '192.168.1.1'],
    ['::1'],
    [],
  ]) {
    const [error, address] = await look('models.example', addresses, true);
    expect(error, addresses.join()).toBeInstanceOf(AddressRefusedError);
    expect(address).toEqual([]);
  }
  expect((await look('localhost', ['169.254.169.254'], false))[0]).toBeInstanceOf(AddressRefusedError);
});

test('passes on that a name stands for nothing', async () => {
  const failure = Object.assign(new Error('not found'), { code: 'ENOTFOUND' });
  const lookup = guardedLookup(POLICY, (_hostname, _options, callback) => callback(failure, []));
  const error = await new Promise((resolve) => lookup('models.example', {}, resolve));
  expect(error).toBe(failure);
});
