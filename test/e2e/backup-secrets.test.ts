import { glob, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { agentHost } from '../support/agent-host.ts';
import { AdminClient, send } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import { holds } from '../support/planted.ts';
import { keepInVaults, plantedForVaults } from '../support/vault-secrets.ts';

/** Of `planted`: random, so that no compression takes them apart. */
const RANDOM_CHARS = 24;

async function found(directory: string, secrets: ReadonlyMap<string, string>, known: string): Promise<string[]> {
  const hits: string[] = [];
  let isSearched = false;
  for await (const name of glob('**', { cwd: directory })) {
    const content = await readFile(join(directory, name), 'latin1').catch(() => '');
    isSearched ||= content.includes(known) || name.includes(known);
    hits.push(...holds(content, secrets).map((secret) => `${secret} in ${name}`));
  }
  expect(isSearched, `the search finds what is there: ${known}`).toBe(true);
  return hits;
}

test(
  'secrets of vaults are in no file of a backup, nor of what is restored from it',
  { timeout: 480_000 },
  async () => {
    await using host = await startHost();
    const place = await mkdtemp(join(tmpdir(), 'agent-host-backup-secrets-'));
    await using _removed = { [Symbol.asyncDispose]: async () => await rm(place, { recursive: true, force: true }) };
    const tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent();
    const planted = plantedForVaults();
    const ask = async (raw: Parameters<typeof send>[1]) =>
      await send(host.url, { ...raw, headers: { ...tenant.headers, ...raw.headers } });
    await keepInVaults({ ask, secrets: planted, name: 'Ann' });
    const secrets = new Map(
      Object.entries(planted).flatMap(([name, secret]) => [
        [name, secret],
        [`the end of ${name}`, secret.slice(-RANDOM_CHARS)],
      ]),
    );

    const backup = join(place, 'backup');
    const made = await agentHost({ AGENT_HOST_DATA_DIR: host.dataDir }, 'backup', backup);
    expect(made.code, made.text).toBe(0);
    expect(await found(backup, secrets, 'KV_SECRETS')).toEqual([]);
    const kek = await host.file('kek');
    await host.stop();

    const dataDir = await mkdtemp(join(place, 'restored-'));
    await writeFile(join(dataDir, 'kek'), kek);
    const restored = await agentHost({ AGENT_HOST_DATA_DIR: dataDir }, 'restore', backup);
    expect(restored.code, restored.text).toBe(0);
    expect(holds(made.text + restored.text, secrets)).toEqual([]);
    expect(await found(dataDir, secrets, tenant.tenantId)).toEqual([]);
  },
);
