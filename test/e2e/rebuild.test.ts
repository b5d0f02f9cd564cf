import { Client } from 'pg';
import { expect, test } from 'vitest';
import { agentHost } from '../support/agent-host.ts';
import type { Ended } from '../support/agent-host.ts';
import { ArtifactClient } from '../support/artifacts.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { builtReadModels, dumpReadModels, settledReadModels } from '../support/read-models.ts';
import { until } from '../support/wait-until.ts';

/** A bit of everything that the read models hold. */
async function fill(host: Host): Promise<TenantClient> {
  const admin = new AdminClient(host);
  await admin.createTenant({ name: 'Another' });
  const tenant = await admin.createTenant();
  await tenant.saveAgent('agent');
  await tenant.saveAgent('agent', { instructions: 'Answer twice.' });
  await tenant.saveAgent('dir/other');
  for (let i = 0; i < 5; i++) {
    const id = `s/${i}`;
    await tenant.openSession(id, { labels: { number: String(i) }, info: { i } });
    for (let turn = 0; turn < 4; turn++) {
      const steps = [
        { text: 'a', toolCalls: [{ name: 'none', input: turn }] },
        { error: { code: 'x', message: 'm', retryable: turn % 2 === 0 } },
      ];
      const { turnId } = await tenant.play(id, steps);
      await tenant.turnEnd(id, turnId);
    }
    await tenant.play(id, [{ text: 'never', delayMs: 600_000 }]);
    await tenant.cancel(id, { reason: 'enough' });
    await tenant.openSession(id, { labels: { number: 'changed' }, info: { i } });
    await keepFiles(tenant, id);
  }
  return tenant;
}

/** Two files, one of them with versions and gone again. */
async function keepFiles(tenant: TenantClient, sessionId: string): Promise<void> {
  const files = new ArtifactClient(tenant);
  await files.upload({ name: 'kept', sessionId, label: 'a=b' }, Buffer.from('kept'));
  const { artifact } = await files.upload({ name: 'gone', sessionId }, Buffer.from('one'));
  await files.sendVersion(artifact.artifactId, Buffer.from('two'));
  await files.remove(artifact.artifactId);
}

test('DROP DATABASE, start: every read model is back, equal row for row', async () => {
  await using host = await startHost();
  const tenant = await fill(host);
  await settledReadModels(tenant, 's/4');
  const history = await tenant.items('s/0');
  const before = await dumpReadModels(host);
  expect(
    Object.values(before)
      .map((rows) => rows.length)
      .filter((count) => count > 0).length,
  ).toBeGreaterThanOrEqual(8);
  await dropDatabase(host);
  await host.restart();
  await builtReadModels(host);
  await until('the projections have read the whole log again', async () => {
    const { length } = Object.values(await dumpReadModels(host)).flat();
    return length === Object.values(before).flat().length;
  });
  await settledReadModels(tenant.at(host), 's/4');
  const after = await dumpReadModels(host);
  expect(after).toEqual(before);
  expect(await tenant.at(host).items('s/0')).toEqual(history);
});

test(
  'projections are rebuilt beside the live ones, under load, and the pages never go back',
  { timeout: 600_000 },
  async () => {
    await using host = await startHost();
    const tenant = await fill(host);
    const loading = new AbortController();
    let seen = 0;
    const load = async (): Promise<void> => {
      while (!loading.signal.aborted) {
        const { turnId } = await tenant.message('s/1', 'more');
        await tenant.turnEnd('s/1', turnId);
        const { length } = await tenant.items('s/1');
        expect(length).toBeGreaterThan(seen);
        seen = length;
      }
    };
    const loaded = load();
    for (let round = 0; round < 3; round++) {
      const { code, text } = await rebuild(host);
      // Between them it says how far it is, when it takes long.
      const rebuilt = [...text.matchAll(/^(\w+): rebuilt in /gm)].map(([, group]) => group);
      expect(rebuilt, text).toEqual(['tenants', 'agents', 'sessions', 'artifacts', 'vaults', 'sandboxes']);
      expect(code).toBe(0);
    }
    loading.abort();
    await loaded;
    await settledReadModels(tenant, 's/1');
    const live = await dumpReadModels(host);
    expect(await rebuild(host)).toMatchObject({ code: 0 });
    await settledReadModels(tenant, 's/1');
    expect(await dumpReadModels(host)).toEqual(live);
  },
);

/** The database goes away under the running Host. */
async function dropDatabase(host: Host): Promise<void> {
  const url = new URL(await host.file('database-url'));
  const name = url.pathname.slice(1);
  url.pathname = '/postgres';
  const client = new Client({ connectionString: url.toString() });
  await client.connect();
  await client.query(`drop database ${name} with (force)`);
  await client.end();
}

async function rebuild(host: Host): Promise<Ended> {
  return await agentHost({ AGENT_HOST_DATA_DIR: host.dataDir }, 'projections', 'rebuild');
}
