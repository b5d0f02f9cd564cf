import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import type { EventRecord, TenantClient } from '../../support/client.ts';
import { seededRandom } from '../../support/random.ts';
import { bare, fork, parentAt, said } from './fork-world.ts';
import { historyHolds, newSession, newTenant, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** Pages and streams over the boundaries of a history that lies in several sessions. */
export function reading(target: () => HttpTarget): void {
  /** Three generations, each with a turn of its own, all of which went on after they were forked. */
  async function family(): Promise<{ tenant: TenantClient; other: TenantClient; id: string; expected: object[] }> {
    const { tenant, other, id, items } = await parentAt(target());
    const expected = items.map(bare);
    let newest = id;
    for (const generation of ['b', 'c']) {
      const child = await fork(tenant, newest);
      await said(tenant, newest, `${newest} goes on`);
      await said(tenant, child.id, generation);
      expected.push(...(await tenant.items(child.id)).slice(-3).map(bare));
      newest = child.id;
    }
    return { tenant, other, id: newest, expected };
  }

  random(target);

  describe('the history of a fork of a fork', () => {
    test('every limit, both ways, on both nodes, and a cursor is exclusive', async () => {
      const { tenant, other, id, expected } = await family();
      const whole = await tenant.items(id);
      expect(whole.map(bare)).toEqual(expected);
      historyHolds(whole, id);
      for (let limit = 1; limit <= whole.length + 1; limit += 1) {
        expect(await other.items(id, { limit })).toEqual(whole);
        expect(await tenant.items(id, { limit, order: 'desc' })).toEqual(whole.toReversed());
      }
      for (const [i, { cursor }] of whole.entries()) {
        const page = async (query: string) =>
          shaped(await tenant.request({ path: `/v1/sessions/${id}/items?cursor=${cursor}&${query}` }), 200, wire.items);
        expect((await page('')).items).toEqual(whole.slice(i + 1));
        expect((await page('order=desc')).items).toEqual(whole.slice(0, i).toReversed());
      }
      const filtered = await tenant.request({ path: `/v1/sessions/${id}/items?agent=nobody` });
      expect(filtered.json).toEqual({ items: [], cursor: whole.at(-1)?.cursor, hasMore: false });
      const backwards = await tenant.request({ path: `/v1/sessions/${id}/items?agent=nobody&order=desc` });
      expect(backwards.json).toEqual({ items: [], cursor: whole.at(0)?.cursor, hasMore: false });
    });

    test('the agent filter looks at the inherited part as at its own', async () => {
      const tenant = await newTenant(target());
      await tenant.saveAgent('helper');
      await tenant.saveAgent('agent', { agents: [{ agentId: 'helper', description: 'Helps.' }] });
      const id = await newSession(tenant);
      const ask = [{ toolCalls: [{ name: 'helper', input: { task: 'help' } }] }, { text: 'done' }];
      await said(tenant, id, ask);
      await said(tenant, id, 'alone');
      const child = await fork(tenant, id);
      await said(tenant, id, ask);
      await said(tenant, child.id, 'alone too');
      await said(tenant, child.id, ask);
      const grandchild = await fork(tenant, child.id);
      await said(tenant, child.id, ask);
      const whole = await tenant.items(grandchild.id);
      const delegated = whole.filter(({ payload }) => 'agent' in Object(payload));
      expect(delegated.map(({ type }) => type)).toEqual([
        ...['delegation.started', 'message.assistant', 'delegation.completed'],
        ...['delegation.started', 'message.assistant', 'delegation.completed'],
      ]);
      const agent = 'agent/helper';
      for (let limit = 1; limit <= delegated.length + 1; limit += 1) {
        expect(await tenant.items(grandchild.id, { limit, agent })).toEqual(delegated);
        expect(await tenant.items(grandchild.id, { limit, agent, order: 'desc' })).toEqual(delegated.toReversed());
      }
      const page = async (query: string) =>
        shaped(await tenant.request({ path: `/v1/sessions/${grandchild.id}/items?${query}` }), 200, wire.items);
      const full = await page(`agent=${agent}&limit=${delegated.length}`);
      expect(full).toMatchObject({ hasMore: false, cursor: whole.at(-1)?.cursor });
      const reader = await tenant.at(target().nodes[1]).events(grandchild.id, { agent });
      expect(await reader.collect(delegated.length)).toEqual(delegated);
      await said(tenant, grandchild.id, ask);
      expect((await reader.collect(delegated.length + 3)).slice(0, delegated.length)).toEqual(delegated);
      reader.close();
    });

    test('streams from every place of it, and goes on live', async () => {
      const { tenant, other, id } = await family();
      const whole = await tenant.items(id);
      const from = [undefined, ...whole.map(({ cursor }) => cursor)];
      const readers = await Promise.all(
        from.map(
          async (cursor, i) => await (i % 2 === 0 ? tenant : other).events(id, cursor === undefined ? {} : { cursor }),
        ),
      );
      const latest = await other.events(id, { cursor: 'latest' });
      await said(tenant, id, 'live');
      const all = await tenant.items(id);
      for (const [i, reader] of readers.entries()) {
        expect(await reader.collect(all.length - i)).toEqual(all.slice(i));
        reader.close();
      }
      expect(await latest.collect(3)).toEqual(all.slice(-3));
      latest.close();
    });

    test('is resumed over the boundary, record by record, at the other node', async () => {
      const { tenant, id } = await family();
      const whole = await tenant.items(id);
      let reader = await tenant.events(id);
      const seen: unknown[] = [];
      for (let i = 0; i < whole.length; i += 1) {
        const { data } = await reader.find((frame) => frame.id !== null);
        seen.push(JSON.parse(data));
        reader = await reader.resume(target().nodes[i % 2 === 0 ? 1 : 0].url);
      }
      reader.close();
      expect(seen).toEqual(whole);
    });

    test('a fork in what was inherited comes from where that lies', async () => {
      const { tenant, id } = await family();
      const whole = await tenant.items(id);
      for (const [i, { cursor }] of whole.entries()) {
        const child = await fork(tenant, id, { cursor });
        expect((await tenant.items(child.id)).map(bare)).toEqual(whole.slice(0, i + 1).map(bare));
        expect(child.cursor).not.toBe(cursor);
      }
    });
  });
}

/** What a session is in plain words: a list, of which a fork takes the first part. */
function random(target: () => HttpTarget): void {
  test('pages and streams of any tree of forks are what plain lists say', async () => {
    const chance = seededRandom('forks');
    const tenant = await newTenant(target());
    const clients = target().nodes.map((node) => tenant.at(node));
    const anyone = (): TenantClient => clients[chance.int(0, clients.length - 1)] ?? tenant;
    const model = new Map<string, string[]>([[await newSession(tenant), []]]);
    const anySession = (): string => [...model.keys()][chance.int(0, model.size - 1)] ?? '';
    for (let i = 0; i < 150; i += 1) {
      const id = anySession();
      const said = model.get(id) ?? [];
      if (chance.int(0, 2) > 0) {
        await anyone().cancel(id, { reason: `${i}` });
        said.push(`${i}`);
        continue;
      }
      const count = chance.int(0, 1) === 0 ? said.length : chance.int(0, said.length);
      // A place that is no record yet has no cursor; without one a fork takes everything.
      const cursor = count === 0 || count === said.length ? undefined : (await anyone().items(id))[count - 1]?.cursor;
      const child = await fork(anyone(), id, { cursor });
      model.set(child.id, said.slice(0, cursor === undefined ? said.length : count));
    }
    expect(model.size).toBeGreaterThan(30);
    const reasons = (items: readonly EventRecord[]): unknown[] =>
      items.map(({ payload }) => Reflect.get(Object(payload), 'reason'));
    for (const [id, said] of model) {
      const limit = chance.int(1, 7);
      const items = await anyone().items(id, { limit });
      expect(reasons(items)).toEqual(said);
      historyHolds(items, id);
      expect(await anyone().items(id, { limit, order: 'desc' })).toEqual(items.toReversed());
      const from = chance.int(0, said.length);
      const cursor = items[from - 1]?.cursor;
      const reader = await anyone().events(id, cursor === undefined ? {} : { cursor });
      expect(await reader.collect(said.length - from)).toEqual(items.slice(from));
      reader.close();
      expect((await anyone().session(id)).cursor).toBe(items.at(-1)?.cursor ?? null);
    }
  });
}
