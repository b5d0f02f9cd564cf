import { createHash, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { executorDeleted, executorsSaved } from '#src/http/wire/executors.ts';
import { AdminClient, TenantClient } from '../support/client.ts';
import type { Answer } from '../support/client.ts';
import { refused, shaped } from '../conformance/http/target.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { seededRandom } from '../support/random.ts';
import { SseReader } from '../support/sse.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { claims, registration, SigningKey } from '../support/tokens.ts';
import { until } from '../support/wait-until.ts';

/** At once on the node that did it, within a second on every other: most of the time, on a machine that may stand still. */
const USUALLY_WITHIN_MS = 1_000;
/** A node that is not told never learns of it. */
const WITHIN_MS = 20_000;
const ROUNDS = 20;
const ROOM = 'room';
/** How tokens of executors begin here. */
const EXECUTOR = 'executor-';

describe('credentials that are taken away, on two nodes', () => {
  let nodes: readonly [Host, Host];
  let database: TcpProxy;
  let tenant: TenantClient;

  beforeAll(async () => {
    const env = { AGENT_HOST_FAILED_AUTH_PER_SECOND: '100000' };
    const first = await startHost({ env });
    const databaseUrl = new URL(await first.file('database-url'));
    database = await TcpProxy.start(Number(databaseUrl.port));
    databaseUrl.port = String(database.port);
    nodes = [first, await startHost({ join: first, env: { ...env, DATABASE_URL: databaseUrl.href } })];
    tenant = await new AdminClient(first).createTenant();
    await tenant.saveAgent();
    await tenant.openSession(ROOM, { subject: 'ann' });
    await known(tenant);
  });

  afterAll(async () => {
    await nodes[1][Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
    await nodes[0][Symbol.asyncDispose]();
  });

  const withKey = (key: string | null): TenantClient => new TenantClient({ ...tenant.credentials, key: key ?? '' });
  const at = (index: number): Host => (index % 2 === 0 ? nodes[0] : nodes[1]);
  const isExecutor = (client: TenantClient): boolean => client.credentials.key.startsWith(EXECUTOR);
  /** Of a request that the credential may send, whatever it is. */
  const ask = async (client: TenantClient): Promise<Answer> =>
    await client.request({ path: isExecutor(client) ? '/v1/actions' : '/v1/me' });
  const status = async (client: TenantClient): Promise<number> => (await ask(client)).status;

  async function known(client: TenantClient): Promise<void> {
    for (const node of nodes) {
      await until('both nodes know the credential', async () => (await status(client.at(node))) === 200, WITHIN_MS);
    }
  }

  async function saveKey(id: string, { by = tenant, body = {} }: { by?: TenantClient; body?: object } = {}) {
    const answer = await by.request({ method: 'PUT', path: `/v1/tenant/keys/${id}`, body });
    return shaped(answer, 200, wire.keySaved);
  }

  async function saveIssuer(over: Record<string, unknown> & { keys: readonly SigningKey[] }, by = tenant) {
    const { keys, ...rest } = over;
    const body = registration(keys, rest);
    shaped(await by.request({ method: 'PUT', path: '/v1/tenant/issuers/people', body }), 200, wire.issuer);
  }

  async function remove(what: string, by: TenantClient): Promise<void> {
    shaped(await by.request({ method: 'DELETE', path: `/v1/tenant/${what}` }), 200, wire.deleted);
  }

  async function streams(client: TenantClient): Promise<SseReader[]> {
    return await Promise.all(nodes.map(async (node) => await stream(client.at(node))));
  }

  async function stream(client: TenantClient): Promise<SseReader> {
    if (!isExecutor(client)) return await client.events(ROOM, { cursor: 'latest' });
    return await SseReader.open(client.credentials.url, '/v1/executors/connect', { headers: client.headers });
  }

  /** Gives each agent's executor the token, and says whose they are. */
  async function saveExecutors(tokens: Readonly<Record<string, string>>, by = tenant): Promise<void> {
    const executors = Object.entries(tokens).map(([agentId, token]) => ({ agentId, token }));
    const answer = await by.request({ method: 'PUT', path: '/v1/executors', body: { executors } });
    shaped(answer, 200, executorsSaved);
  }

  /** Dead at once where it was done, on the other node in time, with its streams. Returns how long the other took, ms. */
  async function dies(client: TenantClient, index: number, open: readonly SseReader[]): Promise<number> {
    const began = performance.now();
    refused(await ask(client.at(at(index))), 401, 'credential_invalid');
    const other = client.at(at(index + 1));
    await until('it is dead on the other node', async () => (await status(other)) === 401, WITHIN_MS);
    const tookMs = performance.now() - began;
    for (const reader of open) await reader.end(Math.max(1, WITHIN_MS - (performance.now() - began)));
    return tookMs;
  }

  /** The streams that nobody took away still bring what happens. */
  async function goOn(readers: readonly SseReader[]): Promise<void> {
    const { cursor } = await tenant.cancel(ROOM);
    for (const reader of readers) {
      await reader.find(({ id }) => id === cursor);
      expect(reader.ended).toBe(false);
      reader.close();
    }
  }

  test(`keys, rotated and deleted in ${ROUNDS} rounds`, { timeout: 240_000 }, async () => {
    const random = seededRandom('revocation of keys');
    const others = [...(await streams(tenant)), ...(await streams(tenant.as('ann')))];
    const took = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const id = `k${random.int(0, 2)}`;
      const made = withKey((await saveKey(id, { by: tenant.at(at(round)) })).key);
      await known(made);
      const open = [...(await streams(made)), ...(await streams(made.as('ann')))];
      const rotates = random.int(0, 1) === 0;
      const by = random.int(0, 1) === 0 ? made : tenant;
      const next = rotates ? withKey((await saveKey(id, { by: by.at(at(round)) })).key) : tenant;
      if (!rotates) await remove(`keys/${id}`, by.at(at(round)));
      expect(await status(next.at(at(round)))).toBe(200);
      took.push(await dies(made, round, open));
      await known(next);
    }
    process.stdout.write(`slowest of ${ROUNDS}: ${Math.max(...took).toFixed(1)} ms\n`);
    expect(took.toSorted((a, b) => a - b)[ROUNDS / 2]).toBeLessThan(USUALLY_WITHIN_MS);
    await goOn(others);
  });

  test('executors, rotated and deleted in rounds', { timeout: 240_000 }, async () => {
    const random = seededRandom('revocation of executors');
    await tenant.saveAgent('other');
    const others = withKey(`${EXECUTOR}${randomUUID()}`);
    await saveExecutors({ other: others.credentials.key });
    await known(others);
    const untouched = await streams(others);
    for (let round = 0; round < ROUNDS; round += 1) {
      const by = tenant.at(at(round));
      const [made, next] = [withKey(`${EXECUTOR}${randomUUID()}`), withKey(`${EXECUTOR}${randomUUID()}`)];
      await saveExecutors({ agent: made.credentials.key }, by);
      await known(made);
      const open = await streams(made);
      const rotates = random.int(0, 1) === 0;
      if (rotates) await saveExecutors({ agent: next.credentials.key }, by);
      else shaped(await by.request({ method: 'DELETE', path: '/v1/executors/agent' }), 200, executorDeleted);
      expect(await status(next.at(at(round)))).toBe(rotates ? 200 : 401);
      await dies(made, round, open);
    }
    expect(untouched.map(({ ended }) => ended)).toEqual([false, false]);
    // A token that stays with its executor keeps its streams, whatever else is said of it.
    const executors = [{ agentId: 'other', token: others.credentials.key, implementationVersion: 'v2' }];
    shaped(await tenant.request({ method: 'PUT', path: '/v1/executors', body: { executors } }), 200, executorsSaved);
    const witness = withKey((await saveKey('witness')).key);
    await known(witness);
    expect(untouched.map(({ ended }) => ended)).toEqual([false, false]);
    for (const reader of untouched) reader.close();
  });

  test('executors that change tokens with each other lose their streams, not their lives', async () => {
    await tenant.saveAgent('other');
    const [one, two] = [withKey(`${EXECUTOR}${randomUUID()}`), withKey(`${EXECUTOR}${randomUUID()}`)];
    await saveExecutors({ agent: one.credentials.key, other: two.credentials.key });
    for (const client of [one, two]) await known(client);
    const open = [...(await streams(one)), ...(await streams(two))];
    await saveExecutors({ agent: two.credentials.key, other: one.credentials.key });
    for (const reader of open) await reader.end(WITHIN_MS);
    expect(await Promise.all([one, two].map(status))).toEqual([200, 200]);
    // Each is the other's now: the room is of the agent `agent`.
    const result = { type: 'action_result', actionId: 'ac_1', claimId: 'cl_1', generation: 1 };
    const outcome = { kind: 'completed', output: null };
    refused(await two.command(ROOM, { ...result, outcome }), 409, 'claim_stale');
    refused(await one.command(ROOM, { ...result, outcome }), 404, 'not_found');
  });

  test('a stream that opens while its key is taken away does not outlive it', { timeout: 240_000 }, async () => {
    let opened = 0;
    for (let round = 0; round < ROUNDS; round += 1) {
      const made = withKey((await saveKey('k')).key);
      await known(made);
      const opening = Array.from({ length: 16 }, async (_, i) => {
        const opened = made.at(at(i)).events(ROOM, { cursor: 'latest' });
        return await opened.catch((error: unknown) => String(error));
      });
      const by = tenant.at(at(round));
      const [answers] = await Promise.all([Promise.all(opening), remove('keys/k', by)]);
      const began = performance.now();
      const readers = answers.filter((answer) => typeof answer !== 'string');
      opened += readers.length;
      for (const answer of answers.filter((one) => typeof one === 'string'))
        expect(answer).toContain('credential_invalid');
      for (const reader of readers) await reader.end(Math.max(1, WITHIN_MS - (performance.now() - began)));
    }
    process.stdout.write(`streams that opened in time: ${opened} of ${16 * ROUNDS}\n`);
    expect(opened).toBeGreaterThan(0);
  });

  test('a key that keeps its secret and changes its role loses its streams, not its life', async () => {
    const own = `own-${randomUUID()}`;
    const body = { credentialHash: createHash('sha256').update(own).digest('hex') };
    await saveKey('own', { body });
    await known(withKey(own));
    const [open, others] = [await streams(withKey(own)), await streams(tenant)];
    await saveKey('own', { body: { ...body, role: 'management' } });
    for (const reader of open) await reader.end(WITHIN_MS);
    expect(await status(withKey(own))).toBe(200);
    refused(await withKey(own).request({ path: `/v1/sessions/${ROOM}` }), 403, 'key_role_mismatch');
    await goOn(others);
  });

  test('an issuer, deleted or with other keys', async () => {
    const [key, next] = [new SigningKey('one'), new SigningKey('two')];
    const others = [...(await streams(tenant)), ...(await streams(tenant.as('ann')))];
    for (let round = 0; round < 4; round += 1) {
      await saveIssuer({ keys: [key] });
      const token = withKey(key.token(claims()));
      await known(token);
      const open = await streams(token);
      const by = tenant.at(at(round));
      if (round < 2) await remove('issuers/people', by);
      else await saveIssuer({ keys: [next] }, by);
      await dies(token, round, open);
    }
    const same = await streams(withKey(next.token(claims())));
    // Another issuer, and the same registration again, leave it alone.
    const body = registration([key], { issuer: 'https://other.example' });
    await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/other', body });
    await saveIssuer({ keys: [next] });
    await remove('issuers/other', tenant);
    await goOn([...others, ...same]);
    expect(same.map(({ frames }) => frames.length > 0)).toEqual([true, true]);
    await remove('issuers/people', tenant);
  });

  test('while a node has no Postgres it knows who calls, and who no longer may', async () => {
    const [key, cut] = [new SigningKey('one'), nodes[1]];
    await saveIssuer({ keys: [key] });
    const management = withKey((await saveKey('ops', { body: { role: 'management' } })).key);
    const doomed = withKey((await saveKey('doomed')).key);
    const token = withKey(key.token(claims()));
    for (const client of [management, doomed, token]) await known(client);
    const open = await streams(doomed);
    database.dropRequests();
    database.cutAll();
    try {
      for (const client of [tenant, tenant.as('ann'), management, token])
        expect(await status(client.at(cut))).toBe(200);
      refused(await withKey('ak_unknown').at(cut).request({ path: '/v1/me' }), 401, 'credential_invalid');
      refused(await management.at(cut).request({ path: `/v1/sessions/${ROOM}` }), 403, 'key_role_mismatch');
      await remove('keys/doomed', tenant);
      await dies(doomed, 0, open);
      const fresh = withKey((await saveKey('fresh')).key);
      await known(fresh);
      // What it does itself holds too: at once here, and at the other node in time.
      await fresh.at(cut).request({ method: 'DELETE', path: '/v1/tenant/keys/ops' });
      await dies(management, 1, []);
      await remove('issuers/people', tenant);
      await dies(token, 0, []);
    } finally {
      database.pass();
      database.cutAll();
    }
  });

  test(
    'what a node knew it knows after a restart, and nothing that was taken away meanwhile',
    { timeout: 240_000 },
    async () => {
      const [kept, gone] = [withKey((await saveKey('kept')).key), withKey((await saveKey('gone')).key)];
      await known(kept);
      await nodes[1].stop();
      await remove('keys/gone', tenant);
      await nodes[1].restart();
      expect(await status(kept.at(nodes[1]))).toBe(200);
      refused(await gone.at(nodes[1]).request({ path: '/v1/me' }), 401, 'credential_invalid');
    },
  );
});
