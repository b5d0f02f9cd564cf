import { expect, test } from 'vitest';
import { capacityOf } from './model.ts';
import type { Scrape } from './scrape.ts';

const LIMITS = { appendsPerShard: 2_000, natsMemoryBytes: 2 ** 30, nodeMemoryBytes: 2 ** 30, turns: 100 };

function look(atMs: number, values: Readonly<Record<string, number>>): Scrape {
  const samples = Object.entries(values).map(([key, value]) => {
    const [, name = '', labels = ''] = /^(\w+)(?:\{(.*)\})?$/.exec(key) ?? [];
    return { name, labels, value };
  });
  return { url: 'http://node/metrics', atMs, samples };
}

test('rates are those of the time between two samples, and a turn costs what all nodes spent', () => {
  const engine = [
    look(0, { process_cpu_seconds_total: 10, 'turns_ended_total{outcome="completed"}': 100 }),
    look(2_000, { process_cpu_seconds_total: 11, 'turns_ended_total{outcome="completed"}': 300 }),
  ] as const;
  const projector = [
    look(0, {
      process_cpu_seconds_total: 5,
      'log_shard_commits{shard="0"}': 1_000,
      'log_shard_bytes{shard="0"}': 10_000,
    }),
    look(2_000, {
      process_cpu_seconds_total: 5.4,
      'log_shard_commits{shard="0"}': 2_000,
      'log_shard_bytes{shard="0"}': 410_000,
    }),
  ] as const;
  const found = capacityOf([engine, projector], LIMITS);
  expect(found.turnsPerSecond).toBe(100);
  expect(found.perTurn?.cpuMs).toBeCloseTo(7);
  expect(found.perTurn?.logBytes).toBe(2_000);
  expect(found.uses[0]).toMatchObject({ what: 'processor of http://node/metrics', use: 0.5, limit: 1 });
  expect(found.uses.find(({ what }) => what === 'appends of shard 0')).toMatchObject({ use: 500, share: 0.25 });
});

test('a node that was restarted counts from its start, and without a projector nothing is said of what is stored', () => {
  const pair = [look(0, { log_append_seconds_count: 900 }), look(1_000, { log_append_seconds_count: 40 })] as const;
  const found = capacityOf([pair], LIMITS);
  expect(found.nodes[0]?.appendsPerSecond).toBe(40);
  expect([found.stored, found.perTurn]).toEqual([null, null]);
});

test('a million aggregates take 0.65 GiB of a nats-server', () => {
  const at = { 'log_shard_commits{shard="0"}': 5, 'log_shard_subjects{shard="0"}': 1_000_000 };
  const { uses } = capacityOf([[look(0, at), look(1_000, at)]], LIMITS);
  expect(uses[0]).toMatchObject({ what: 'memory of a nats-server for its index' });
  expect(uses[0]?.share).toBeCloseTo(0.65, 2);
});
