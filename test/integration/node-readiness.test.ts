import { afterAll, beforeAll, expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

/** Readiness of a node alone, at its private port: what its own roles cannot do without, and nothing else. */

const WITHIN_MS = 60_000;
let stack: AsyncDisposableStack;
let log: TcpProxy;
let database: TcpProxy;
let commands: Host;
let projector: Host;

beforeAll(async () => {
  stack = new AsyncDisposableStack();
  const whole = stack.use(await startHost());
  await new AdminClient(whole).createTenant();
  const [natsUrl, databaseUrl] = [new URL(await whole.file('nats-url')), new URL(await whole.file('database-url'))];
  log = stack.use(await TcpProxy.start(Number(natsUrl.port)));
  database = stack.use(await TcpProxy.start(Number(databaseUrl.port)));
  natsUrl.port = String(log.port);
  databaseUrl.port = String(database.port);
  const urls = { NATS_URL: natsUrl.href, DATABASE_URL: databaseUrl.href };
  const start = async (role: string): Promise<Host> =>
    stack.use(await startHost({ join: whole, env: { ...urls, AGENT_HOST_ROLES: role } }));
  [commands, projector] = await Promise.all([start('commands'), start('projector')]);
}, 240_000);

afterAll(async () => {
  await stack.disposeAsync();
});

async function statuses(): Promise<number[]> {
  const ready = ({ metricsUrl }: Host): string => metricsUrl.replace('/metrics', '/ready');
  return await Promise.all([commands, projector].map(async (host) => (await fetch(ready(host))).status));
}

async function becomes(expected: readonly number[]): Promise<void> {
  const isSo = async (): Promise<boolean> => (await statuses()).join() === expected.join();
  await until(`commands and projector answer ${expected.join(' and ')}`, isSo, WITHIN_MS);
}

function without(proxy: TcpProxy): AsyncDisposable {
  proxy.dropRequests();
  proxy.cutAll();
  return {
    [Symbol.asyncDispose]: async () => {
      proxy.pass();
      proxy.cutAll();
      await becomes([200, 200]);
    },
  };
}

test('without Postgres a projector is not ready, and a node for commands is', async () => {
  await becomes([200, 200]);
  await using _away = without(database);
  await becomes([200, 503]);
  expect(await statuses()).toEqual([200, 503]);
});

test('without NATS neither is', async () => {
  await becomes([200, 200]);
  await using _away = without(log);
  await becomes([503, 503]);
  expect(await statuses()).toEqual([503, 503]);
});

test('a node that stops says so while it drains', async () => {
  // Long enough to be looked at on a busy machine, twice.
  await commands.restart({ AGENT_HOST_DRAIN_SECONDS: '12' });
  await becomes([200, 200]);
  const stopping = commands.stop();
  await becomes([503, 200]);
  expect(await statuses()).toEqual([503, 200]);
  await stopping;
});
