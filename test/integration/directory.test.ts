import { afterAll, beforeAll, expect, test } from 'vitest';
import { tenantType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import { decideCreateTenant } from '#src/domain/tenant/decide.ts';
import type { TenantEvent } from '#src/domain/tenant/events.ts';
import type { TenantState } from '#src/domain/tenant/state.ts';
import { UnavailableError } from '#src/lib/unavailable.ts';
import { systemClock } from '#src/lib/clock.ts';
import { sha256Hex } from '#src/lib/hash.ts';
import { newId } from '#src/lib/ids.ts';
import { Directory } from '#src/projections/directory/directory.ts';
import { DirectoryProjector } from '#src/projections/directory/projector.ts';
import type { DirectoryTenant } from '#src/projections/directory/entries.ts';
import { SealBrokenError } from '#src/streams/sealed-bytes.ts';
import type { Keyring } from '#src/streams/keyring.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { capturedLog } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { until } from '../support/wait-until.ts';

const disposables = new AsyncDisposableStack();
let nats: TestNats;
let log: TestLog;
let bucket: KeyValue;
let tenants: Repository<TenantState, TenantEvent>;

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
  bucket = new JetStreamKeyValue(log.connections.appends, { kv: log.topology.buckets.directory, name: 'DIRECTORY' });
  tenants = new Repository({ type: tenantType, store: log.store, cacheBytes: 1_000_000 });
});

afterAll(async () => {
  await disposables.disposeAsync();
});

const refOf = (id: string) => ({ tenant: id, kind: 'tenant', id }) as const;

/** A tenant in the log, as by a node that died before it published it. Its key is its id. */
async function created(): Promise<string> {
  const tenantId = newId('tn');
  const hash = sha256Hex(tenantId);
  const loop = new CommandLoop(systemClock, () => 1);
  const command: Parameters<typeof decideCreateTenant>[1] = {
    ...{ tenantId, name: 'A tenant', principalId: 'app', bodyHash: hash, idempotencyKey: null },
    ...{ credentialHash: hash, studioCredentialHash: sha256Hex(`studio ${tenantId}`) },
  };
  await loop.execute(tenants, refOf(tenantId), {
    ...{ actor: 'admin', causation: 'test' },
    decide: (state) => decideCreateTenant(state, command),
  });
  return tenantId;
}

async function node(): Promise<Directory> {
  const directory = new Directory({ bucket, sealer: log.keyring, logger: capturedLog().logger });
  await directory.start();
  disposables.defer(() => directory.stop());
  return directory;
}

function projector(directory: Directory, load = async (id: string) => await tenants.refresh(refOf(id))) {
  const { logger, lines } = capturedLog();
  const made = new DirectoryProjector({ directory, bucket, source: log.source, load, logger });
  made.start();
  return { lines, [Symbol.asyncDispose]: async () => await made.stop() };
}

const knows = (directory: Directory, id: string): boolean =>
  directory.principals(sha256Hex(id)).some(({ tenantId }) => tenantId === id);

test('a tenant that is in the log only becomes known to every node, those that start later too', async () => {
  const nodes = [await node(), await node()];
  await using _ = projector(nodes[0] as Directory);
  const ids = await Promise.all(Array.from({ length: 5 }, created));
  for (const directory of nodes) await until('it knows them', () => ids.every((id) => knows(directory, id)));
  const late = await node();
  expect(ids.every((id) => knows(late, id))).toBe(true);
  expect(late.tenant(ids[0] ?? '')).toMatchObject({ id: ids[0], state: 'open', name: 'A tenant' });
  expect(JSON.stringify((await bucket.get(`tenant.${ids[0]}`))?.value)).not.toContain('bodyHash');
  expect(late.principals(sha256Hex('nobody'))).toEqual([]);
});

test('a node that has not heard of a tenant yet asks for it, and for nothing newer than it knows', async () => {
  const writer = await node();
  const id = await created();
  const { state, position } = await tenants.refresh(refOf(id));
  if (state.status === 'absent') throw new Error('there is no tenant');
  await writer.publish(state, position);
  let asked = 0;
  let answer: KeyValue['newest'] = async (key) => await bucket.newest(key);
  const deaf = overriding(bucket, {
    watch: async () => await Promise.resolve(),
    newest: async (key: string) => {
      asked++;
      return await answer(key);
    },
  });
  const directory = new Directory({ bucket: deaf, sealer: log.keyring, logger: capturedLog().logger });
  await directory.start();
  expect(knows(directory, id)).toBe(false);
  expect([await directory.refresh(id), knows(directory, id)]).toEqual([true, true]);
  expect([await directory.refresh(id), await directory.refresh('tn_unknown')]).toEqual([false, false]);
  expect([asked, await directory.refresh('a.b'), await directory.refresh('>'), asked]).toEqual([3, false, false, 3]);
  answer = async () => await Promise.reject(new UnavailableError('streams', 'away'));
  expect(await directory.refresh(id)).toBe(false);
  answer = async (key) => ({ key, value: 'no entry', revision: 1 });
  expect([await directory.refresh(id), knows(directory, id)]).toEqual([false, true]);
  // One that does not answer: no request waits for it for long, and it is not asked for each of many.
  answer = async () => await new Promise(() => undefined);
  const before = asked;
  const many = Array.from({ length: 1_000 }, async () => await directory.refresh(id));
  expect(new Set(await Promise.all(many))).toEqual(new Set([false]));
  expect(asked - before).toBeLessThan(500);
  directory.stop();
});

test('an answer that was under way brings back no tenant that has gone meanwhile', async () => {
  const [writer, id] = [await node(), await created()];
  const { state, position } = await tenants.refresh(refOf(id));
  if (state.status === 'absent') throw new Error('there is no tenant');
  await writer.publish(state, position);
  const entry = await bucket.newest(`tenant.${id}`);
  const answered = Promise.withResolvers<typeof entry>();
  let tell: Parameters<KeyValue['watch']>[1] = () => undefined;
  const late = overriding(bucket, {
    watch: async (_prefix: string, onChange: typeof tell) => await Promise.resolve(void (tell = onChange)),
    newest: async () => await answered.promise,
  });
  const directory = new Directory({ bucket: late, sealer: log.keyring, logger: capturedLog().logger });
  await directory.start();
  const asked = directory.refresh(id);
  tell({ kind: 'removed', key: `tenant.${id}` });
  await new Promise((resolve) => setImmediate(resolve));
  answered.resolve(entry);
  expect([await asked, knows(directory, id), directory.tenant(id)]).toEqual([false, false, undefined]);
  directory.stop();
});

test('a tenant that came again with the id of one that went is asked for as any other', async () => {
  const [writer, id] = [await node(), await created()];
  const { state, position } = await tenants.refresh(refOf(id));
  await writer.publish(state, position);
  const entry = await bucket.newest(`tenant.${id}`);
  if (entry === null) throw new Error('there is no entry');
  let tell: Parameters<KeyValue['watch']>[1] = () => undefined;
  const watched = overriding(bucket, {
    watch: async (_prefix: string, onChange: typeof tell) => await Promise.resolve(void (tell = onChange)),
  });
  const directory = new Directory({ bucket: watched, sealer: log.keyring, logger: capturedLog().logger });
  await directory.start();
  tell({ kind: 'removed', key: `tenant.${id}` });
  tell({ kind: 'put', entry });
  await until('it is known', () => knows(directory, id));
  // A later key of it, of which the watch has not told yet.
  await writer.publish(state, position + 1);
  expect(await directory.refresh(id)).toBe(true);
  directory.stop();
});

test('projectors on several nodes at once agree', async () => {
  const nodes = [await node(), await node(), await node()];
  await using _0 = projector(nodes[0] as Directory);
  await using _1 = projector(nodes[1] as Directory);
  await using _2 = projector(nodes[2] as Directory);
  const ids = await Promise.all(Array.from({ length: 10 }, created));
  for (const directory of nodes) await until('it knows them', () => ids.every((id) => knows(directory, id)));
  const entries = nodes.map((directory) => ids.map((id) => directory.tenant(id)));
  expect(entries[1]).toEqual(entries[0]);
  expect(entries[2]).toEqual(entries[0]);
});

test('an older state never takes the place of a newer one, on any node', async () => {
  const [here, there] = [await node(), await node()];
  const id = await created();
  const { state, position } = await tenants.refresh(refOf(id));
  if (state.status === 'absent') throw new Error('there is no tenant');
  await here.publish({ ...state, name: 'Newer' }, position + 10);
  await until('the other node knows it', () => there.tenant(id)?.name === 'Newer');
  await there.publish(state, position);
  await here.publish(state, position);
  expect([here.tenant(id)?.name, there.tenant(id)?.name]).toEqual(['Newer', 'Newer']);
  expect((await node()).tenant(id)?.name).toBe('Newer');
});

test('executors are principals like keys, on every node, and an entry from before there were any has none', async () => {
  const [here, there] = [await node(), await node()];
  const [hash, id] = [sha256Hex('executor'), await created()];
  const { state, position } = await tenants.refresh(refOf(id));
  if (state.status === 'absent') throw new Error('there is no tenant');
  await here.publish(state, position);
  // As it was written before there were executors, and before entries were sealed.
  const { executors: _, ...old } = here.tenant(id) as DirectoryTenant;
  await bucket.put(`tenant.${id}`, JSON.stringify({ ...old, name: 'Old' }));
  await until('the old entry is known', () => there.tenant(id)?.name === 'Old' && here.tenant(id)?.name === 'Old');
  expect([there.tenant(id)?.executors, there.principals(hash), knows(there, id)]).toEqual([[], [], true]);
  expect([here.unsealed, there.unsealed]).toEqual([[id], [id]]);
  const executor = { agentId: 'a/b', implementationVersion: 'v', hash, updatedAt: '' };
  await here.publish({ ...state, executors: [executor] }, position + 1);
  await until('the executor is known', () => [here, there].every((one) => one.principals(hash).length > 0));
  for (const directory of [here, there]) {
    expect(directory.principals(hash)).toEqual([{ tenantId: id, principalId: 'a/b', role: 'executor' }]);
  }
  // The node that wrote it knows the entry before it hears of it like the others.
  await until('none is unsealed', () => [here, there].every((one) => one.unsealed.length === 0));
  await here.publish({ ...state, status: 'deleting', executors: [executor] }, position + 2);
  await until('nothing of a tenant that goes is known', () =>
    [here, there].every((one) => one.principals(hash).length === 0),
  );
  expect([here.principals(hash), knows(here, id)]).toEqual([[], false]);
});

test('an entry waits for its key while that cannot be asked for; one that does not open is an alarm and holds up no other', async () => {
  const ids = [await created(), await created(), await created()];
  const writer = await node();
  for (const id of ids) {
    const { state, position } = await tenants.refresh(refOf(id));
    await writer.publish(state, position);
    const { value } = (await bucket.get(`tenant.${id}`)) ?? { value: '' };
    expect(value).not.toContain('A tenant');
    expect(value).not.toContain(sha256Hex(id));
  }
  const [late = '', broken = '', garbage = ''] = ids;
  await bucket.put(`tenant.${garbage}`, 'no entry');
  let failures = 0;
  const { logger, lines } = capturedLog();
  const openText: Keyring['openText'] = async (tenant, context, sealed) => {
    if (tenant === late && failures++ < 3) throw new UnavailableError('streams', 'away');
    if (tenant === broken) throw new SealBrokenError('broken');
    return await log.keyring.openText(tenant, context, sealed);
  };
  const directory = new Directory({ bucket, sealer: overriding(log.keyring, { openText }), logger });
  await directory.start();
  expect(failures).toBeGreaterThan(3);
  expect([knows(directory, late), knows(directory, broken), knows(directory, garbage)]).toEqual([true, false, false]);
  expect(lines.filter(({ msg }) => msg.includes('ALARM'))).toHaveLength(2);
  await bucket.put(`tenant.${late}`, 'no entry');
  await until('its old credentials are not trusted any more', () => !knows(directory, late));
  directory.stop();
  for (const id of [late, garbage]) await bucket.remove(`tenant.${id}`);
});

test('of many that publish at once the newest stays', async () => {
  const directory = await node();
  const id = await created();
  const { state, position } = await tenants.refresh(refOf(id));
  if (state.status === 'absent') throw new Error('there is no tenant');
  const nodes = await Promise.all(Array.from({ length: 4 }, node));
  await Promise.all(
    nodes.flatMap((one, n) =>
      [0, 4, 8].map(async (by) => await one.publish({ ...state, name: `${by + n}` }, position + by + n)),
    ),
  );
  await until('it is the newest everywhere', () => [directory, ...nodes].every((one) => one.tenant(id)?.name === '11'));
  expect((await node()).tenant(id)?.name).toBe('11');
});

test('what cannot be published for a while is published after it: nothing is stepped over', async () => {
  const directory = await node();
  let failures = 0;
  const away = async (id: string) => {
    if (failures++ < 3) throw new UnavailableError('streams', 'the log cannot be read');
    return await tenants.refresh(refOf(id));
  };
  await using running = projector(directory, away);
  const ids = [await created(), await created(), await created()];
  await until('all are known', () => ids.every((id) => knows(directory, id)));
  expect(failures).toBeGreaterThanOrEqual(3);
  expect(running.lines.length).toBeGreaterThan(0);
});

test('one that starts again reads on from its checkpoint', async () => {
  const directory = await node();
  {
    await using _ = projector(directory);
    const id = await created();
    const { position } = await tenants.refresh(refOf(id));
    await until('the checkpoint is there', async () => Number((await bucket.get('checkpoint.0'))?.value) >= position);
  }
  const checkpoint = Number((await bucket.get('checkpoint.0'))?.value);
  const starts: number[] = [];
  const follow: TestLog['source']['follow'] = (options) => {
    starts.push(options.after);
    return log.source.follow(options);
  };
  const source = overriding(log.source, { follow });
  const { logger } = capturedLog();
  const load = async (id: string) => await tenants.refresh(refOf(id));
  const again = new DirectoryProjector({ directory, bucket, source, load, logger });
  again.start();
  const id = await created();
  await until('it is known', () => knows(directory, id));
  await again.stop();
  expect(starts).toEqual([checkpoint]);
});

test('nodes go on over a restart of the server', async () => {
  const [here, there] = [await node(), await node()];
  await using _ = projector(here);
  const before = await created();
  await until('both know it', () => knows(here, before) && knows(there, before));
  await nats.kill();
  await nats.restart();
  const after = await until('the log takes it', async () => await created().catch(() => undefined));
  await until('both know both', () => [here, there].every((one) => knows(one, before) && knows(one, after)));
  expect(there.tenants.length).toBeGreaterThan(1);
});
