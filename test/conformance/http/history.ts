import { describe, expect, test } from 'vitest';
import type { z } from 'zod';
import * as wire from '#src/http/wire/schemas.ts';
import type { EventRecord, TenantClient } from '../../support/client.ts';
import { historyHolds, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

type Page = z.infer<typeof wire.items>;

/** A session of three turns: 3 + 5 + 3 records. */
async function threeTurns(target: HttpTarget): Promise<{ tenant: TenantClient; id: string; items: EventRecord[] }> {
  const tenant = await newTenant(target);
  const id = await newSession(tenant);
  const call = { toolCalls: [{ name: 'absent', input: {} }] };
  for (const steps of [[{ text: 'a' }], [call, { text: 'b' }], [{ error: { code: 'c', message: 'm' } }]]) {
    const { turnId } = await tenant.play(id, steps);
    await tenant.turnEnd(id, turnId);
  }
  const items = await tenant.items(id);
  historyHolds(items, id);
  expect(items.length).toBeGreaterThan(7);
  return { tenant, id, items };
}

/** The history in pages, and the ledger of model calls. */
export function historySuite(target: () => HttpTarget): void {
  const page = async (tenant: TenantClient, id: string, query: string): Promise<Page> =>
    shaped(await tenant.request({ path: `/v1/sessions/${id}/items?${query}` }), 200, wire.items);

  describe('items', () => {
    test('every limit, both ways, gives the same history', async () => {
      const { tenant, id, items } = await threeTurns(target());
      for (const order of ['asc', 'desc']) {
        const expected = order === 'asc' ? items : items.toReversed();
        for (let limit = 1; limit <= items.length + 1; limit += 1) {
          const seen: EventRecord[] = [];
          let cursor: string | null = null;
          for (let more = true; more;) {
            const from: string = cursor === null ? '' : `&cursor=${cursor}`;
            const found: Page = await page(tenant, id, `limit=${limit}&order=${order}${from}`);
            expect(found.items.length).toBe(Math.min(limit, expected.length - seen.length));
            seen.push(...found.items);
            expect(found.cursor).toBe(seen.at(-1)?.cursor ?? null);
            expect(found.hasMore).toBe(seen.length < expected.length);
            ({ hasMore: more, cursor } = found);
          }
          expect(seen).toEqual(expected);
        }
      }
    });

    test('a cursor is exclusive in both directions', async () => {
      const { tenant, id, items } = await threeTurns(target());
      for (const [i, { cursor }] of items.entries()) {
        expect((await page(tenant, id, `cursor=${cursor}`)).items).toEqual(items.slice(i + 1));
        const before = await page(tenant, id, `cursor=${cursor}&order=desc`);
        expect(before.items).toEqual(items.slice(0, i).toReversed());
      }
    });

    test('an empty history has no cursor; past the end comes the cursor sent', async () => {
      const { tenant, id, items } = await threeTurns(target());
      const empty = await newSession(tenant);
      expect(await page(tenant, empty, '')).toEqual({ items: [], cursor: null, hasMore: false });
      const last = items.at(-1)?.cursor ?? '';
      expect(await page(tenant, id, `cursor=${last}`)).toEqual({ items: [], cursor: last, hasMore: false });
      const first = items[0]?.cursor ?? '';
      const none = await page(tenant, id, `cursor=${first}&order=desc`);
      expect(none).toEqual({ items: [], cursor: first, hasMore: false });
    });

    test('the agent filter drops records, and its cursor names the last one looked at', async () => {
      const { tenant, id, items } = await threeTurns(target());
      const seen = await page(tenant, id, 'agent=child');
      expect(seen).toEqual({ items: [], cursor: items.at(-1)?.cursor, hasMore: false });
      const { cursor } = await tenant.cancel(id);
      expect((await page(tenant, id, `cursor=${seen.cursor}`)).items.map((item) => item.cursor)).toEqual([cursor]);
    });

    test('a cursor of another session is none', async () => {
      const { tenant, id, items } = await threeTurns(target());
      const other = await newSession(tenant);
      const cursor = items[0]?.cursor ?? '';
      for (const route of ['items', 'events']) {
        const answer = await tenant.request({ path: `/v1/sessions/${other}/${route}?cursor=${cursor}` });
        refused(answer, 400, 'cursor_invalid');
      }
      const headers = { 'last-event-id': cursor };
      refused(await tenant.request({ path: `/v1/sessions/${other}/events`, headers }), 400, 'cursor_invalid');
      const list = await tenant.request({ path: `/v1/sessions?cursor=${cursor}` });
      refused(list, 400, 'cursor_invalid');
      expect((await tenant.items(id)).length).toBe(items.length);
    });
  });

  describe('model calls', () => {
    test('oldest first, page by page, of one turn or all', async () => {
      const { tenant, id, items } = await threeTurns(target());
      const whole = shaped(await tenant.request({ path: `/v1/sessions/${id}/calls/model` }), 200, wire.calls);
      expect(whole.nextCursor).toBeNull();
      expect(whole.calls.map(({ outcome }) => outcome)).toEqual(['completed', 'completed', 'completed', 'failed']);
      expect(new Set(whole.calls.map((call) => call.id)).size).toBe(4);
      for (const call of whole.calls) {
        expect(call).toMatchObject({ sessionId: id, agentId: 'agent', provider: 'fixture', model: 'any' });
        expect(call.id).toMatch(/^mc_/);
        expect(call.usage).toMatchObject({ duplicate: false, costUsd: 0, costKnown: true });
      }
      for (const limit of [1, 2, 3, 4, 200]) {
        const seen = [];
        for (let cursor: string | null = ''; cursor !== null;) {
          const query = `?limit=${limit}${cursor === '' ? '' : `&cursor=${cursor}`}`;
          const found: z.infer<typeof wire.calls> = await tenant.at(target().nodes[1]).calls(id, query);
          seen.push(...found.calls);
          cursor = found.nextCursor;
        }
        expect(seen).toEqual(whole.calls);
      }
      const turnIds = [...new Set(items.map(({ turnId }) => turnId))];
      const [, second] = turnIds;
      const ofTurn = await tenant.calls(id, `?turnId=${second}&limit=1`);
      expect(ofTurn.calls.map(({ turnId }) => turnId)).toEqual([second]);
      refused(
        await tenant.request({ path: `/v1/sessions/${id}/calls/model?cursor=${ofTurn.nextCursor}` }),
        400,
        'cursor_invalid',
      );
      expect((await tenant.calls(id, '?turnId=tu_none')).calls).toEqual([]);
    });

    test('are there as soon as the turn has ended', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      for (let i = 1; i <= 20; i += 1) {
        const { turnId } = await tenant.message(id, `call ${i}`);
        await tenant.turnEnd(id, turnId);
        expect((await tenant.at(target().nodes[i % 2 === 0 ? 0 : 1]).calls(id)).calls).toHaveLength(i);
      }
    });
  });
}
