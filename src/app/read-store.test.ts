import { expect, test } from 'vitest';
import { readConfig } from './config.ts';
import { planOf } from './processes/plan.ts';
import { poolSize } from './read-store.ts';
import { ROLES } from './roles.ts';

const OF_POSTGRES = 100;

test.each([1, 4, 8])('the processes of a Host fit beside each other on a log of %i streams', (shards) => {
  for (const count of [2, 3, 7, 8]) {
    const plan = planOf(count, ROLES);
    const servingProcesses = plan.filter(({ isServing }) => isServing).length;
    const sizes = plan.map(({ roles }) => poolSize({ ...readConfig({}), roles, servingProcesses }, shards));
    const together = sizes.reduce((sum, size) => sum + size, 0);
    expect(together, `${count} processes`).toBeLessThan(OF_POSTGRES);
  }
});

test('a number that is given is kept, unless a projector needs more', () => {
  const config = readConfig({ AGENT_HOST_DATABASE_CONNECTIONS: '15' });
  expect(poolSize({ ...config, servingProcesses: 3 }, 4)).toBe(15);
  expect(() => poolSize(config, 16)).toThrow(/is 15, and a projector of 16 shards needs 24/);
});
