import { describe, expect, test } from 'vitest';
import type { z } from 'zod';
import * as wire from '#src/http/wire/schemas.ts';
import type { TenantClient } from '../../support/client.ts';
import { fresh, newSession, newTenant, refused, shaped } from './target.ts';
import { until } from '../../support/wait-until.ts';
import type { HttpTarget } from './target.ts';

/** Sessions: opening, showing and listing them. */
export function sessionSuite(target: () => HttpTarget): void {
  describe('opening sessions', () => {
    opening(target);
  });
  describe('deleting sessions', () => {
    deleting(target);
  });
  describe('listing sessions', () => {
    listing(target);
  });
  describe('sessions of subjects', () => {
    subjects(target);
  });
}

async function open(tenant: TenantClient, id: string, body: unknown) {
  return await tenant.request({ method: 'PUT', path: `/v1/sessions/${encodeURIComponent(id)}`, body });
}

function opening(target: () => HttpTarget): void {
  test('shows the session whole, and to every node at once', async () => {
    const tenant = await newTenant(target());
    const body = { agentId: 'agent', requestId: 'r', info: { a: [1, null, { b: 'ä' }] }, labels: { team: 'x' } };
    const session = shaped(
      await open(tenant, 'room/1.a', { ...body, sandbox: false, subject: 'ann' }),
      200,
      wire.session,
    );
    expect(session).toMatchObject({
      id: 'room/1.a',
      agentId: 'agent',
      agentVersion: 1,
      subject: 'ann',
      status: 'idle',
      activeTurnId: null,
      lastTurn: null,
      labels: { team: 'x' },
      info: body.info,
      vaultIds: [],
      sandboxId: null,
      waits: [],
      cursor: null,
    });
    expect(session.usage).toMatchObject({ totalTokens: 0, costUsd: 0 });
    const there = await tenant.at(target().nodes[1]).request({ path: '/v1/sessions/room%2F1.a' });
    expect(shaped(there, 200, wire.session)).toEqual(session);
  });

  test('the same body is the same answer, other content a conflict; labels may change', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant, { labels: { a: '1' } });
    const first = await tenant.session(id);
    const again = await open(tenant, id, { agentId: 'agent', labels: { a: '1' }, requestId: 'other' });
    expect(shaped(again, 200, wire.session)).toEqual(first);
    refused(await open(tenant, id, { agentId: 'agent', labels: { a: '1' }, info: { a: 1 } }), 409, 'conflict');
    refused(await open(tenant, id, { agentId: 'agent', subject: 'ann' }), 409, 'conflict');
    await tenant.saveAgent('second');
    refused(await open(tenant, id, { agentId: 'second', labels: { a: '1' } }), 409, 'conflict');
    expect(await tenant.session(id)).toEqual(first);
    const changed = shaped(await open(tenant, id, { agentId: 'agent', labels: { b: '2' } }), 200, wire.session);
    expect(changed).toMatchObject({ labels: { b: '2' }, createdAt: first.createdAt, cursor: first.cursor });
  });

  test('an unknown agent, vault or sandbox is not found', async () => {
    const tenant = await newTenant(target());
    refused(await open(tenant, 's', { agentId: 'none' }), 404, 'not_found');
    refused(await open(tenant, 's', { agentId: 'agent', vaultIds: ['va_none'] }), 404, 'not_found');
    refused(await open(tenant, 's', { agentId: 'agent', sandbox: { id: 'none' } }), 404, 'not_found');
    refused(await tenant.request({ path: '/v1/sessions/s' }), 404, 'not_found');
    const list = shaped(await tenant.request({ path: '/v1/sessions' }), 200, wire.sessionList);
    expect(list).toMatchObject({ sessions: [], nextCursor: null });
    expect(Math.abs(Date.parse(list.asOf) - Date.now())).toBeLessThan(60_000);
  });

  test('agents used as tools may be too long together, also those that a message brings', async () => {
    const tenant = await newTenant(target());
    const instructions = 'x'.repeat(480_000);
    const ids = await Promise.all(
      [1, 2, 3, 4, 5].map(async (n) => await tenant.saveAgent(`long-${n}`, { instructions })),
    );
    const using = (count: number) => ids.slice(0, count).map((agentId) => ({ agentId, description: 'Helps.' }));
    await tenant.saveAgent('some', { agents: using(4) });
    await tenant.saveAgent('many', { agents: using(5) });
    const id = fresh('s');
    expect((await open(tenant, id, { agentId: 'some' })).status).toBe(200);
    const tooMany = await open(tenant, fresh('s'), { agentId: 'many' });
    expect(refused(tooMany, 413, 'limit_exceeded').details).toEqual({ limit: 'usedAgents' });
    const manifest = { instructions: 'Be brief.', agents: using(5) };
    const brought = await tenant.command(id, { type: 'message', content: 'x', manifest });
    expect(refused(brought, 413, 'limit_exceeded').details).toEqual({ limit: 'usedAgents' });
  });

  test('20 at the same time on two nodes open one', async () => {
    const tenant = await newTenant(target());
    const clients = target().nodes.map((node) => tenant.at(node));
    const id = fresh('race');
    const answers = await Promise.all(
      Array.from({ length: 20 }, async (_, i) => await open(clients[i % 2] ?? tenant, id, { agentId: 'agent' })),
    );
    const sessions = answers.map((answer) => shaped(answer, 200, wire.session));
    for (const session of sessions) expect(session).toEqual(sessions[0]);
  });

  test('after a turn the session tells of it', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const { turnId } = await tenant.play(id, [{ text: 'one', usage: { inputTokens: 5, outputTokens: 7 } }]);
    const end = await tenant.turnEnd(id, turnId);
    const session = await tenant.at(target().nodes[1]).session(id);
    expect(session).toMatchObject({ status: 'idle', activeTurnId: null, cursor: end.cursor });
    expect(session.lastTurn).toEqual({ turnId, outcome: 'completed', endedAt: end.createdAt });
    expect(session.usage).toMatchObject({ inputTokens: 5, outputTokens: 7, totalTokens: 12, tokensReported: true });
  });
}

function deleting(target: () => HttpTarget): void {
  const path = (id: string): string => `/v1/sessions/${encodeURIComponent(id)}`;

  test('takes history, calls and receipts along; the id begins anew, and old cursors are of nothing', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const body = { type: 'message', content: 'before', idempotencyKey: 'k' };
    const { turnId, cursor } = shaped(await tenant.command(id, body), 202, wire.commandAccepted);
    await tenant.turnEnd(id, turnId);
    const other = await newSession(tenant);
    expect(shaped(await tenant.request({ method: 'DELETE', path: path(id) }), 200, wire.deleted)).toEqual({
      id,
      deleted: true,
    });
    for (const node of target().nodes) {
      for (const end of ['', '/items', '/events', '/calls/model']) {
        refused(await tenant.at(node).request({ path: path(id) + end }), 404, 'not_found');
      }
    }
    refused(await tenant.request({ method: 'DELETE', path: path(id) }), 404, 'not_found');
    refused(await tenant.command(id, body), 404, 'not_found');
    const listed = shaped(await tenant.request({ path: '/v1/sessions' }), 200, wire.sessionList);
    expect(listed.sessions.map((session) => session.id)).toEqual([other]);

    await tenant.openSession(id);
    expect(await tenant.items(id)).toEqual([]);
    expect((await tenant.calls(id)).calls).toEqual([]);
    refused(await tenant.request({ path: `${path(id)}/items?cursor=${cursor ?? ''}` }), 400, 'cursor_invalid');
    refused(await tenant.request({ path: `${path(id)}/events?cursor=${cursor ?? ''}` }), 400, 'cursor_invalid');
    // The same command with the same key is a new one.
    const again = shaped(await tenant.command(id, body), 202, wire.commandAccepted);
    expect(again.turnId).not.toBe(turnId);
    await tenant.turnEnd(id, again.turnId);
    expect((await tenant.at(target().nodes[1]).items(id)).map(({ turnId: of }) => of)).toEqual(
      Array.from({ length: 3 }, () => again.turnId),
    );
    expect((await tenant.session(id)).usage).toEqual((await tenant.calls(id)).calls[0]?.usage);
  });

  test('is refused while a turn is active, and ends open streams', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const { turnId } = await tenant.message(id, JSON.stringify({ fixture: [{ delayMs: 60_000 }] }));
    const busy = refused(await tenant.request({ method: 'DELETE', path: path(id) }), 409, 'session_busy');
    expect(busy.activeTurnId).toBe(turnId);
    const stream = await tenant.at(target().nodes[1]).events(id);
    await tenant.command(id, { type: 'cancel' });
    await tenant.turnEnd(id, turnId);
    shaped(await tenant.request({ method: 'DELETE', path: path(id) }), 200, wire.deleted);
    await until('the stream has ended', () => stream.ended);
  });
}

type Page = z.infer<typeof wire.sessionList>;

function listing(target: () => HttpTarget): void {
  async function all(tenant: TenantClient, query: string, limit = 50): Promise<string[]> {
    const seen: string[] = [];
    for (let cursor: string | null = ''; cursor !== null;) {
      const path = `/v1/sessions?limit=${limit}${query}${cursor === '' ? '' : `&cursor=${cursor}`}`;
      const page: Page = shaped(await tenant.request({ path }), 200, wire.sessionList);
      expect(page.sessions.length).toBeLessThanOrEqual(limit);
      seen.push(...page.sessions.map(({ id }) => id));
      cursor = page.nextCursor;
    }
    return seen;
  }

  test('newest first, page by page, a new one at once at every node', async () => {
    const tenant = await newTenant(target());
    const ids: string[] = [];
    for (let i = 0; i < 7; i += 1) {
      ids.unshift(await newSession(tenant));
      expect((await all(tenant.at(target().nodes[i % 2 === 0 ? 1 : 0]), '')).toSorted()).toEqual(ids.toSorted());
    }
    const created = await Promise.all(ids.map(async (id) => (await tenant.session(id)).createdAt));
    expect(created).toEqual(created.toSorted().toReversed());
    const whole = await all(tenant, '');
    for (const limit of [1, 2, 3, 7, 200]) expect(await all(tenant, '', limit)).toEqual(whole);
  });

  test('each filter alone and together', async () => {
    const tenant = await newTenant(target());
    await tenant.saveAgent('other');
    const [a, b, c, d] = ['a', 'b', 'c', 'd'];
    await tenant.openSession(a, { labels: { team: 'x', note: 'a=b&ä' } });
    await tenant.openSession(b, { labels: { team: 'x' }, agentId: 'other' });
    await tenant.openSession(c, { subject: 'ann', labels: { team: 'y' } });
    await tenant.openSession(d, { subject: 'ben' });
    const { turnId } = await tenant.play(d, [{ text: 'late', delayMs: 60_000 }]);
    const found = async (query: string): Promise<string[]> => (await all(tenant, query)).toSorted();
    expect(await found('')).toEqual([a, b, c, d]);
    expect(await found('&agentId=other')).toEqual([b]);
    expect(await found('&agentId=none')).toEqual([]);
    expect(await found('&label=team%3Dx')).toEqual([a, b]);
    expect(await found('&label=team=x&agentId=agent')).toEqual([a]);
    expect(await found(`&label=${encodeURIComponent('note=a=b&ä')}`)).toEqual([a]);
    expect(await found('&label=team=x&label=note=a%3Db%26%C3%A4')).toEqual([a]);
    expect(await found('&label=team=x&label=team=y')).toEqual([]);
    expect(await found('&label=team=x&label=team=x')).toEqual([a, b]);
    expect(await found('&label=team%3D')).toEqual([]);
    expect(await found('&subject=ann')).toEqual([c]);
    expect(await found('&status=idle&subject=ann')).toEqual([c]);
    expect((await tenant.session(d)).status).toBe('running');
    // The node that accepted the command waits a moment for its read model.
    expect(await found('&status=running')).toEqual([d]);
    expect(await found('&status=paused')).toEqual([]);
    await tenant.cancel(d);
    await tenant.turnEnd(d, turnId);
  });

  test('a cursor is bound to its list and filters', async () => {
    const tenant = await newTenant(target());
    for (const _ of [1, 2, 3]) await newSession(tenant, { labels: { team: 'x' } });
    const first = shaped(await tenant.request({ path: '/v1/sessions?limit=1&label=team=x' }), 200, wire.sessionList);
    const cursor = first.nextCursor ?? '';
    expect((await tenant.request({ path: `/v1/sessions?limit=2&label=team=x&cursor=${cursor}` })).status).toBe(200);
    const elsewhere = ['/v1/sessions?', '/v1/sessions?label=team=y&', '/v1/sessions?status=idle&', '/v1/agents?'];
    for (const path of elsewhere)
      refused(await tenant.request({ path: `${path}cursor=${cursor}` }), 400, 'cursor_invalid');
    const foreign = await newTenant(target());
    refused(await foreign.request({ path: `/v1/sessions?label=team=x&cursor=${cursor}` }), 400, 'cursor_invalid');
  });
}

function subjects(target: () => HttpTarget): void {
  test('belong to the subject that opened them; the key alone reaches all', async () => {
    const tenant = await newTenant(target());
    const [ann, ben] = [tenant.as('ann'), tenant.as('ben')];
    expect((await ann.openSession('of-ann')).subject).toBe('ann');
    expect((await ben.openSession('of-ben', { subject: 'ben' })).subject).toBe('ben');
    await tenant.openSession('of-nobody');
    const list = async (client: TenantClient, query = '') =>
      shaped(await client.request({ path: `/v1/sessions${query}` }), 200, wire.sessionList).sessions.map(
        ({ id }) => id,
      );
    expect(await list(ann)).toEqual(['of-ann']);
    expect(await list(ann, '?subject=ann')).toEqual(['of-ann']);
    expect(await list(ann, '?subject=ben')).toEqual([]);
    expect((await list(tenant)).toSorted()).toEqual(['of-ann', 'of-ben', 'of-nobody']);
  });

  test('a foreign session and one that is not there are the same bytes, on every route', async () => {
    const tenant = await newTenant(target());
    const [ann, ben] = [tenant.as('ann'), tenant.as('ben')];
    await ann.openSession('hers');
    await ann.message('hers', 'secret');
    const ids = { requestId: 'r', idempotencyKey: 'k' };
    const command = { method: 'POST', body: { ...ids, type: 'message', content: 'x' } };
    const routes = [
      { path: '' },
      { path: '', method: 'HEAD' },
      { path: '/items' },
      { path: '/events' },
      { path: '/commands', ...command },
      { path: '/commands', method: 'POST', body: { ...ids, type: 'cancel' } },
      { path: '/fork', method: 'POST', body: { ...ids, id: 'mine' } },
      { path: '/commands', method: 'POST', body: { ...ids, type: 'respond', interactionId: 'in_1', value: 1 } },
    ];
    for (const { path, ...raw } of routes) {
      const headers = { 'x-request-id': 'same' };
      const foreign = await ben.request({ ...raw, headers, path: `/v1/sessions/hers${path}` });
      const absent = await ben.request({ ...raw, headers, path: `/v1/sessions/none${path}` });
      expect(foreign.status, path).toBe(404);
      expect(foreign.text, path).toBe(absent.text);
      expect(Object.keys(foreign.headers)).toEqual(Object.keys(absent.headers));
    }
    refused(await open(ben, 'hers', { agentId: 'agent' }), 404, 'not_found');
    expect((await ann.items('hers')).filter(({ type }) => type.startsWith('command.'))).toHaveLength(1);
  });

  test('the body may not name another subject, model calls are for none', async () => {
    const tenant = await newTenant(target());
    const ann = tenant.as('ann');
    refused(await open(ann, 's', { agentId: 'agent', subject: 'ben' }), 400, 'invalid_request');
    await ann.openSession('s');
    const { details } = refused(await ann.request({ path: '/v1/sessions/s/calls/model' }), 403, 'scope_required');
    expect(details).toEqual({ scopes: [] });
    const { turnId } = await ann.message('s', 'hello');
    await ann.turnEnd('s', turnId);
    const [message] = await ann.items('s');
    expect(message?.payload).toMatchObject({ subject: 'ann' });
  });

  test('of another tenant are not there either', async () => {
    const [tenant, foreign] = [await newTenant(target()), await newTenant(target())];
    const id = await newSession(tenant);
    for (const path of ['', '/items', '/events', '/calls/model']) {
      refused(await foreign.request({ path: `/v1/sessions/${id}${path}` }), 404, 'not_found');
    }
    const list = shaped(await foreign.request({ path: '/v1/sessions' }), 200, wire.sessionList);
    expect(list.sessions).toEqual([]);
    expect((await foreign.openSession(id)).cursor).toBeNull();
  });
}
