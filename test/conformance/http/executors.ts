import { createHash, createHmac, randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/executors.ts';
import { TenantClient } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import { SseReader } from '../../support/sse.ts';
import { until } from '../../support/wait-until.ts';
import { newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const CONNECTED_WITHIN_MS = 2_000;
const newToken = (): string => `token-${randomUUID()}`;
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

type Executor = Readonly<Record<string, unknown>> & { readonly agentId: string };

/** Executors: how they are registered, and how they find their work. */
export function executorSuite(target: () => HttpTarget): void {
  const put = async (tenant: TenantClient, executors: readonly Executor[], more: object = {}): Promise<Answer> =>
    await tenant.request({ method: 'PUT', path: '/v1/executors', body: { executors, ...more } });
  const save = async (tenant: TenantClient, executors: readonly Executor[]) =>
    shaped(await put(tenant, executors), 200, wire.executorsSaved).executors;
  const list = async (tenant: TenantClient) =>
    shaped(await tenant.request({ path: '/v1/executors' }), 200, wire.executorList).executors;
  const remove = async (tenant: TenantClient, agentId: string): Promise<Answer> =>
    await tenant.request({ method: 'DELETE', path: `/v1/executors/${encodeURIComponent(agentId)}` });
  const withToken = (tenant: TenantClient, key: string): TenantClient =>
    new TenantClient({ ...tenant.credentials, key });
  const actions = async (tenant: TenantClient, query = ''): Promise<Answer> =>
    await tenant.request({ path: `/v1/actions${query}` });
  const connect = async (tenant: TenantClient): Promise<SseReader> =>
    await SseReader.open(tenant.credentials.url, '/v1/executors/connect', { headers: tenant.headers });
  const second = (tenant: TenantClient): TenantClient => tenant.at(target().nodes[1]);

  async function withAgents(...names: readonly string[]): Promise<TenantClient> {
    const tenant = await newTenant(target());
    for (const name of names) await tenant.saveAgent(name);
    return tenant;
  }

  /** Whose executors are connected, as the node says. */
  const connected = async (tenant: TenantClient): Promise<string[]> =>
    (await list(tenant)).filter((executor) => executor.connected).map(({ agentId }) => agentId);

  describe('registering executors', () => {
    test('several at once; the list has them by agent, without their tokens', async () => {
      const tenant = await withAgents('team/a.1', 'b');
      const tokens = [newToken(), newToken()];
      const sent = [
        { agentId: 'team/a.1', implementationVersion: 'v7', token: tokens[0] },
        { agentId: 'b', token: tokens[1] },
      ];
      expect(await save(tenant, sent)).toEqual([
        { agentId: 'team/a.1', implementationVersion: 'v7', rotated: false },
        { agentId: 'b', implementationVersion: null, rotated: false },
      ]);
      const answer = await second(tenant).request({ path: '/v1/executors' });
      expect(shaped(answer, 200, wire.executorList).executors).toEqual([
        { agentId: 'b', implementationVersion: null, connected: false, updatedAt: expect.any(String) },
        { agentId: 'team/a.1', implementationVersion: 'v7', connected: false, updatedAt: expect.any(String) },
      ]);
      for (const token of tokens) {
        expect(answer.text).not.toContain(token);
        expect(answer.text).not.toContain(sha256(token ?? ''));
        shaped(await actions(withToken(tenant, token ?? '')), 200, wire.actionList);
      }
    });

    test('the same again changes nothing; another token is a rotation, and the old one is dead at once', async () => {
      const tenant = await withAgents();
      const [first, next] = [newToken(), newToken()];
      await save(tenant, [{ agentId: 'agent', token: first }]);
      const [before] = await list(tenant);
      expect(await save(tenant, [{ agentId: 'agent', token: first }])).toMatchObject([{ rotated: false }]);
      expect(await list(tenant)).toEqual([before]);
      expect(await save(tenant, [{ agentId: 'agent', implementationVersion: 'v2', token: first }])).toMatchObject([
        { rotated: false, implementationVersion: 'v2' },
      ]);
      expect((await actions(withToken(tenant, first))).status).toBe(200);
      expect(await save(tenant, [{ agentId: 'agent', token: next }])).toMatchObject([
        { rotated: true, implementationVersion: null },
      ]);
      refused(await actions(withToken(tenant, first)), 401, 'credential_invalid');
      expect((await actions(withToken(tenant, next))).status).toBe(200);
      const [after] = await list(tenant);
      expect((after?.updatedAt ?? '') > (before?.updatedAt ?? '')).toBe(true);
    });

    test('all or nothing: one that cannot be registered keeps the others out', async () => {
      const tenant = await withAgents('b');
      const taken = newToken();
      await save(tenant, [{ agentId: 'b', token: taken }]);
      const { message } = refused(
        await put(tenant, [
          { agentId: 'agent', token: newToken() },
          { agentId: 'absent', token: newToken() },
        ]),
        404,
        'not_found',
      );
      expect(message).toContain('absent');
      const shared = [
        { agentId: 'b', token: newToken() },
        { agentId: 'agent', token: tenant.credentials.key },
      ];
      refused(await put(tenant, shared), 409, 'conflict');
      refused(await put(tenant, [{ agentId: 'agent', token: taken }]), 409, 'conflict');
      expect((await list(tenant)).map(({ agentId }) => agentId)).toEqual(['b']);
      expect((await actions(withToken(tenant, taken))).status).toBe(200);
    });

    test('no secret is shared: not with the studio key, nor a key with an executor', async () => {
      const tenant = await withAgents();
      const studio = createHmac('sha256', target().adminKey).update(`studio\0${tenant.tenantId}`).digest('hex');
      refused(await put(tenant, [{ agentId: 'agent', token: studio }]), 409, 'conflict');
      const token = newToken();
      await save(tenant, [{ agentId: 'agent', token }]);
      const body = { credentialHash: sha256(token) };
      refused(await tenant.request({ method: 'PUT', path: '/v1/tenant/keys/k', body }), 409, 'conflict');
      expect((await actions(withToken(tenant, token))).status).toBe(200);
    });

    test('tenants may use the same token, and each has its own executor', async () => {
      const [one, two] = [await withAgents(), await withAgents('b')];
      const token = newToken();
      await save(one, [{ agentId: 'agent', token }]);
      await save(two, [{ agentId: 'b', token }]);
      const theirs = await one.openSession('s');
      const result = {
        ...{ type: 'action_result', actionId: 'ac_1', claimId: 'cl_1', generation: 1 },
        outcome: { kind: 'completed', output: 1 },
      };
      refused(await withToken(one, token).command(theirs.id, result), 409, 'claim_stale');
      refused(await withToken(two, token).command(theirs.id, result), 404, 'not_found');
      await remove(one, 'agent');
      refused(await actions(withToken(one, token)), 401, 'credential_invalid');
      expect((await actions(withToken(two, token))).status).toBe(200);
    });

    test('a deleted one is dead at once and gone from the list', async () => {
      const tenant = await withAgents('connect');
      const token = newToken();
      await save(tenant, [{ agentId: 'connect', token }]);
      const answer = shaped(await remove(tenant, 'connect'), 200, wire.executorDeleted);
      expect(answer).toEqual({ agentId: 'connect', deleted: true });
      refused(await actions(withToken(tenant, token)), 401, 'credential_invalid');
      expect(await list(second(tenant))).toEqual([]);
      refused(await remove(tenant, 'connect'), 404, 'not_found');
      refused(await remove(await withAgents(), 'agent'), 404, 'not_found');
    });

    test('an archived agent may have one: its sessions go on', async () => {
      const tenant = await withAgents('old');
      await tenant.request({ method: 'DELETE', path: '/v1/agents/old' });
      expect(await save(tenant, [{ agentId: 'old', token: newToken() }])).toMatchObject([{ agentId: 'old' }]);
    });

    test('of 20 rotations at the same time on two nodes, one token is left', async () => {
      const tenant = await withAgents();
      const tokens = Array.from({ length: 20 }, newToken);
      await Promise.all(
        tokens.map(async (token, i) => {
          const at = tenant.at(target().nodes[i % 2 === 0 ? 0 : 1]);
          await save(at, [{ agentId: 'agent', token }]);
        }),
      );
      const alive = async (): Promise<number> => {
        const answers = await Promise.all(tokens.map(async (token) => await actions(withToken(tenant, token))));
        return answers.filter(({ status }) => status === 200).length;
      };
      await until('the other node’s writes have arrived', async () => (await alive()) === 1, 1_000);
      expect(await list(tenant)).toHaveLength(1);
    });

    test('there are at most 500, and a count limit is a conflict', async () => {
      const names = Array.from({ length: 501 }, (_, n) => `a${n}`);
      const tenant = await withAgents(...names);
      for (let n = 0; n < 500; n += 50) {
        await save(
          tenant,
          names.slice(n, n + 50).map((agentId) => ({ agentId, token: newToken() })),
        );
      }
      const more = [
        { agentId: 'a0', token: newToken() },
        { agentId: 'a500', token: newToken() },
      ];
      expect(refused(await put(tenant, more), 409, 'limit_exceeded').details).toEqual({ limit: 'executors' });
      expect(await save(tenant, more.slice(0, 1))).toMatchObject([{ rotated: true }]);
      expect(await list(second(tenant))).toHaveLength(500);
    });
  });

  describe('what an executor finds', () => {
    test('no action while none is pending, whatever the limit', async () => {
      const tenant = await withAgents();
      const token = newToken();
      await save(tenant, [{ agentId: 'agent', token }]);
      for (const query of ['', '?limit=1', '?limit=200']) {
        expect(shaped(await actions(withToken(tenant, token), query), 200, wire.actionList)).toEqual({ actions: [] });
      }
    });

    test('a stream that is an event stream from the first byte, and says nothing without work', async () => {
      const tenant = await withAgents();
      const token = newToken();
      await save(tenant, [{ agentId: 'agent', token }]);
      const reader = await connect(withToken(tenant, token));
      expect(reader.headers).toMatchObject({
        'content-type': 'text/event-stream',
        'cache-control': 'no-store',
        'x-accel-buffering': 'no',
      });
      expect(await reader.comment()).toBe('keepalive');
      // Another stream that opens and ends later had time enough to be told.
      const other = await connect(withToken(tenant, token));
      await remove(tenant, 'agent');
      await other.end();
      await reader.end();
      expect([...reader.frames, ...other.frames]).toEqual([]);
    });

    test('HEAD has the headers and no stream', async () => {
      const tenant = await withAgents();
      const token = newToken();
      await save(tenant, [{ agentId: 'agent', token }]);
      const answer = await withToken(tenant, token).request({ method: 'HEAD', path: '/v1/executors/connect' });
      expect([answer.status, answer.headers['content-type']]).toEqual([200, 'text/event-stream']);
      expect(await connected(tenant)).toEqual([]);
    });

    test('the list says on every node who is connected to any, until the last stream ends', async () => {
      const tenant = await withAgents('b');
      const tokens = { agent: newToken(), b: newToken() };
      await save(
        tenant,
        Object.entries(tokens).map(([agentId, token]) => ({ agentId, token })),
      );
      const says = async (what: string, names: readonly string[]): Promise<void> => {
        for (const client of [tenant, second(tenant)]) {
          const agrees = async (): Promise<boolean> => (await connected(client)).join() === names.join();
          await until(`${what}: connected are ${names.join()}`, agrees, CONNECTED_WITHIN_MS);
        }
      };
      await says('at first', []);
      const one = await connect(second(withToken(tenant, tokens.b)));
      await says('one', ['b']);
      const two = await connect(withToken(tenant, tokens.b));
      const three = await connect(second(withToken(tenant, tokens.agent)));
      await says('three streams', ['agent', 'b']);
      one.close();
      three.close();
      await says('one left', ['b']);
      two.close();
      await says('none', []);
      // It is not another tenant's affair.
      const four = await connect(second(withToken(tenant, tokens.agent)));
      await says('again', ['agent']);
      const foreign = await withAgents();
      await save(foreign, [{ agentId: 'agent', token: newToken() }]);
      expect(await connected(foreign)).toEqual([]);
      await remove(tenant, 'agent');
      await four.end();
      await save(tenant, [{ agentId: 'agent', token: newToken() }]);
      await says('deleted and made anew', []);
    });
  });
}
