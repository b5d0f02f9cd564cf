import { expect, test } from 'vitest';
import { z } from 'zod';
import { agentHost } from '../support/agent-host.ts';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import { until } from '../support/wait-until.ts';
import { Scrape } from '../support/scrape.ts';

const report = z.object({
  seconds: z.number(),
  turnsPerSecond: z.number(),
  nodes: z.array(z.object({ url: z.string(), cores: z.number(), memoryBytes: z.number(), openStreams: z.int() })),
  stored: z.object({
    shards: z.int(),
    commits: z.int(),
    aggregates: z.int(),
    logBytes: z.int(),
    rows: z.int(),
    readStoreBytes: z.int(),
  }),
  perTurn: z.object({ cpuMs: z.number(), appends: z.number(), statements: z.number(), logBytes: z.number() }),
  uses: z.array(z.object({ what: z.string(), share: z.number() })),
});

test('the capacity of a running Host: what it uses, what a turn costs, what gives way first', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent();
  await tenant.openSession('s');
  const events = await tenant.events('s');
  const data = { AGENT_HOST_DATA_DIR: host.dataDir };
  let working = true;
  const work = (async (): Promise<void> => {
    while (working) {
      const { turnId } = await tenant.message('s', 'Hello');
      await tenant.turnEnd('s', turnId);
    }
  })();
  // So long that turns end in it, also where a process stands still for some of it.
  const ended = await agentHost(data, 'capacity', '--seconds', '12', '--json');
  working = false;
  await work;
  events.close();
  expect(ended.code, ended.text).toBe(0);
  const found = report.parse(JSON.parse(ended.text));
  expect(found.seconds).toBeGreaterThanOrEqual(12);
  expect(found.turnsPerSecond).toBeGreaterThan(0);
  expect(found.nodes).toMatchObject([{ url: host.metricsUrl, openStreams: 1 }]);
  expect(found.nodes[0]?.cores).toBeGreaterThan(0);
  expect(found.nodes[0]?.memoryBytes).toBeGreaterThan(30_000_000);
  expect(found.stored.shards).toBe(4);
  // The tenant, its agent and the session at least.
  expect(found.stored.aggregates).toBeGreaterThanOrEqual(3);
  expect(found.stored.logBytes).toBeGreaterThan(1_000);
  expect(found.stored.readStoreBytes).toBeGreaterThan(8_192);
  // A turn without tools: the message with the turn's claim, the answer with its end. Its neighbours are cut at both ends.
  expect(found.perTurn.appends).toBeGreaterThanOrEqual(1.5);
  expect(found.perTurn.appends).toBeLessThan(8);
  expect(found.perTurn.logBytes).toBeGreaterThan(100);
  expect(found.uses.map(({ share }) => share)).toEqual(found.uses.map(({ share }) => share).toSorted((a, b) => b - a));
  const commits = await until('all of it is counted', async () => (await Scrape.of(host)).value('log_shard_commits'));
  expect(commits).toBeGreaterThanOrEqual(found.stored.commits);
  const text = await agentHost({}, 'capacity', host.metricsUrl, '--seconds', '0.2');
  expect(text).toMatchObject({ code: 0, text: expect.stringContaining('What gives way first:') as string });
});

test('what cannot be read is a line that says so', async () => {
  const nowhere = await agentHost({}, 'capacity', 'http://127.0.0.1:9/metrics');
  expect(nowhere).toMatchObject({
    code: 1,
    text: expect.stringMatching(/^agent-host: .*127\.0\.0\.1:9.* cannot be read/) as string,
  });
  const none = await agentHost({ AGENT_HOST_DATA_DIR: '/nowhere/at/all' }, 'capacity');
  expect(none).toMatchObject({ code: 1, text: expect.stringMatching(/^agent-host: no Host runs on/) as string });
  const wrong = await agentHost({}, 'capacity', '--seconds', 'some');
  expect(wrong).toMatchObject({
    code: 1,
    text: expect.stringMatching(/^agent-host: --seconds must be a number/) as string,
  });
});
