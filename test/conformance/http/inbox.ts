import { createHmac } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import * as budgetWire from '#src/http/wire/budgets.ts';
import * as inboxWire from '#src/http/wire/interactions.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { TenantClient } from '../../support/client.ts';
import { executorOf } from '../../support/executor.ts';
import { claims, registration, SigningKey } from '../../support/tokens.ts';
import { until } from '../../support/wait-until.ts';
import { refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';
import { call, inStatus, newToolTenant, outputOf, play, TOOLS } from './tool-world.ts';

/** What people have to answer, over all sessions. */
export function inboxSuite(target: () => HttpTarget): void {
  const inbox = async (client: TenantClient, query = '') =>
    shaped(await client.request({ path: `/v1/interactions${query}` }), 200, inboxWire.interactionList);
  const sessionsIn = async (client: TenantClient, query = ''): Promise<string[]> =>
    (await inbox(client, query)).interactions.map(({ sessionId }) => sessionId);

  /** Sessions that wait for an approval, oldest first. */
  async function waiting(tenant: TenantClient, bodies: readonly Record<string, unknown>[]): Promise<string[]> {
    const ids: string[] = [];
    for (const body of bodies) {
      const { id } = await play(tenant, [call('careful', { n: ids.length }), { text: 'on' }], body);
      await inStatus(target(), tenant, id, 'paused');
      ids.push(id);
    }
    return ids;
  }

  async function managementOf(tenant: TenantClient): Promise<TenantClient> {
    const saved = await tenant.request({ method: 'PUT', path: '/v1/tenant/keys/ops', body: { role: 'management' } });
    return new TenantClient({ ...tenant.credentials, key: shaped(saved, 200, wire.keySaved).key ?? '' });
  }

  describe('the inbox', () => {
    test('has what is open, on both nodes, and no more what was answered', async () => {
      const tenant = await newToolTenant(target());
      await using _ = await executorOf(tenant, {
        nodes: target().nodes,
        run: () => ({
          kind: 'ask',
          interaction: { kind: 'question', prompt: 'Which?', schema: { type: 'string' } },
        }),
      });
      const asked = await play(tenant, [call('find', { a: 1 })], { subject: 'ann' });
      const { waits } = await inStatus(target(), tenant, asked.id, 'paused');
      const [approval = ''] = await waiting(tenant, [{}]);
      const expected = [
        {
          ...{ interactionId: waits[0]?.id, kind: 'question', sessionId: asked.id, turnId: asked.turnId },
          ...{ agentId: 'agent', subject: 'ann', prompt: 'Which?', toolName: 'find', input: { a: 1 } },
          ...{ schema: { type: 'string' }, createdAt: expect.any(String), actionId: expect.any(String) },
        },
        {
          ...{ interactionId: expect.any(String), kind: 'approval', sessionId: approval, turnId: expect.any(String) },
          ...{ agentId: 'agent', subject: null, toolName: 'careful', input: { n: 0 } },
          ...{ createdAt: expect.any(String), actionId: expect.any(String) },
        },
      ];
      for (const node of target().nodes) {
        const { interactions, nextCursor } = await inbox(tenant.at(node), '?status=open');
        expect(interactions).toEqual(expected);
        expect(nextCursor).toBeNull();
      }
      const interactionId = (await inbox(tenant)).interactions[1]?.interactionId;
      await tenant.command(approval, { type: 'approve', interactionId, approved: false });
      expect(await sessionsIn(tenant.at(target().nodes[1]))).toEqual([asked.id]);
      await tenant.cancel(asked.id);
      expect(await sessionsIn(tenant)).toEqual([]);
    });

    test('comes in pages, by agent and by subject', async () => {
      const tenant = await newToolTenant(target());
      await tenant.saveAgent('other', { tools: TOOLS });
      const bodies = [
        { subject: 'ann' },
        { agentId: 'other' },
        { subject: 'ben' },
        { subject: 'ann', agentId: 'other' },
      ];
      const ids = await waiting(tenant, bodies);
      const of = (...numbers: number[]) => numbers.map((n) => ids[n]);
      expect(await sessionsIn(tenant)).toEqual(ids);
      expect(await sessionsIn(tenant, '?agentId=other')).toEqual(of(1, 3));
      expect(await sessionsIn(tenant, '?subject=ann')).toEqual(of(0, 3));
      expect(await sessionsIn(tenant, '?subject=ann&agentId=agent')).toEqual(of(0));
      expect(await sessionsIn(tenant, '?subject=nobody')).toEqual([]);
      const paged: string[] = [];
      for (let cursor: string | null = null; ;) {
        const query = `?limit=3${cursor === null ? '' : `&cursor=${cursor}`}`;
        const { interactions, nextCursor } = await inbox(tenant, query);
        paged.push(...interactions.map(({ sessionId }) => sessionId));
        if (nextCursor === null) break;
        cursor = nextCursor;
        refused(
          await tenant.request({ path: `/v1/interactions?cursor=${cursor}&agentId=other` }),
          400,
          'cursor_invalid',
        );
      }
      expect(paged).toEqual(ids);
    });

    test('of a person has that person’s own, of a token what its grants reach', async () => {
      const tenant = await newToolTenant(target());
      await tenant.saveAgent('other', { tools: TOOLS });
      const [ann = '', , other = ''] = await waiting(tenant, [
        { subject: 'ann' },
        { subject: 'ben' },
        { subject: 'ann', agentId: 'other' },
      ]);
      expect(await sessionsIn(tenant.as('ann'))).toEqual([ann, other]);
      expect(await sessionsIn(tenant.as('ann'), '?subject=ben')).toEqual([]);
      refused(await tenant.as('ann', 'agents:read').request({ path: '/v1/interactions' }), 403, 'scope_required');
      const signing = new SigningKey('k1');
      const body = registration([signing], { agentsClaim: 'agents' });
      shaped(await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/people', body }), 200, wire.issuer);
      const withToken = (agents: unknown): TenantClient => {
        const key = signing.token(claims({ scope: 'sessions:own', agents }));
        return new TenantClient({ ...tenant.credentials, key });
      };
      expect(await sessionsIn(withToken(['other']))).toEqual([other]);
      expect(await sessionsIn(withToken(['agent', 'other']))).toEqual([ann, other]);
      expect(await sessionsIn(withToken([]))).toEqual([]);
    });

    test('a question about a budget is for keys, those of management included, and not for people', async () => {
      const tenant = await newToolTenant(target());
      const management = await managementOf(tenant);
      const budgets = [{ id: 'b', scope: 'tenant', period: 'total', limitTokens: 25 }];
      shaped(
        await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body: { budgets } }),
        200,
        budgetWire.budgetList,
      );
      const step = { text: 'ok', usage: { inputTokens: 10, outputTokens: 10 } };
      const { id, turnId } = await play(tenant, [step], { subject: 'ann' });
      await outputOf(tenant, id, turnId);
      const { turnId: held } = await tenant.play(id, [step]);
      await inStatus(target(), tenant, id, 'paused');
      for (const client of [tenant, management]) {
        const { interactions } = await inbox(client.at(target().nodes[1]));
        expect(interactions).toMatchObject([{ kind: 'question', sessionId: id, turnId: held, budgetId: 'b' }]);
      }
      expect(await sessionsIn(tenant.as('ann'))).toEqual([]);
      const interactionId = (await inbox(management)).interactions[0]?.interactionId;
      const respond = { type: 'respond', interactionId, value: { raise: { limitTokens: 100 } } };
      refused(await tenant.as('ann').command(id, respond), 403, 'not_granted');
      const key = { idempotencyKey: 'raise' };
      const receipt = shaped(
        await management.at(target().nodes[1]).command(id, respond, key),
        202,
        wire.commandAccepted,
      );
      expect(await outputOf(tenant, id, held ?? '')).toBe('ok');
      const again = shaped(await management.command(id, respond, key), 202, wire.commandAccepted);
      expect(again).toEqual(receipt);
      expect(await sessionsIn(management)).toEqual([]);
      const raised = await until('the audit trail has it', async () => {
        const newest = await management.request({ path: '/v1/tenant/audit?limit=1' });
        const [entry] = shaped(newest, 200, wire.auditTrail).entries;
        return entry?.actor.startsWith('management:') === true && entry;
      });
      expect(raised).toMatchObject({ action: 'budgets.saved', requestId: expect.stringMatching(/^rq-/) });
    });

    test('a management key sees and answers nothing else', async () => {
      const tenant = await newToolTenant(target());
      const [id = ''] = await waiting(tenant, [{}]);
      const interactionId = (await inbox(tenant)).interactions[0]?.interactionId;
      const management = await managementOf(tenant);
      expect(await sessionsIn(management)).toEqual([]);
      for (const command of [
        { type: 'approve', interactionId, approved: true },
        { type: 'respond', interactionId, value: 1 },
        { type: 'respond', interactionId: 'in_none', value: { raise: false } },
        { type: 'message', content: 'x' },
        { type: 'cancel' },
        { type: 'retry' },
      ]) {
        refused(await management.command(id, command), 403, 'key_role_mismatch');
      }
      const studio = createHmac('sha256', target().adminKey).update(`studio\0${tenant.tenantId}`).digest('hex');
      const owner = new TenantClient({ ...tenant.credentials, key: studio });
      expect(await sessionsIn(owner)).toEqual([id]);
      const approve = { type: 'approve', interactionId, approved: false };
      const { turnId } = shaped(await owner.command(id, approve), 202, wire.commandAccepted);
      expect(await outputOf(tenant, id, turnId ?? '')).toBe('on');
    });
  });
}
