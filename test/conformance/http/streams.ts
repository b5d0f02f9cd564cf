import { describe, expect, test } from 'vitest';
import type { EventRecord, TenantClient } from '../../support/client.ts';
import type { SseReader } from '../../support/sse.ts';
import { newSession, newTenant } from './target.ts';
import type { HttpTarget } from './target.ts';

const PLAY = [
  { text: 'one', toolCalls: [{ name: 'absent', input: { a: 'line\nbreak', b: 'ä\u2028' } }] },
  { text: 'two', toolCalls: [{ name: 'absent', input: {} }] },
  { text: 'done' },
];

/** The live stream. */
export function streamSuite(target: () => HttpTarget): void {
  async function played(): Promise<{ tenant: TenantClient; id: string; items: EventRecord[] }> {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const { turnId } = await tenant.play(id, PLAY);
    await tenant.turnEnd(id, turnId);
    return { tenant, id, items: await tenant.items(id) };
  }
  async function reading(reader: SseReader, count: number): Promise<EventRecord[]> {
    try {
      return await reader.collect(count);
    } finally {
      reader.close();
    }
  }

  describe('the live stream', () => {
    test('has the documented headers and form', async () => {
      const { tenant, id, items } = await played();
      const reader = await tenant.events(id);
      expect(reader.headers['content-type']).toMatch(/^text\/event-stream/);
      expect(reader.headers['cache-control']).toBe('no-store');
      expect(reader.headers['x-accel-buffering']).toBe('no');
      expect(reader.headers['x-request-id']).toMatch(/^[\x21-\x7e]{1,128}$/);
      expect(await reader.next()).toEqual({ id: null, event: 'ready', data: '{}' });
      for (const item of items) {
        const frame = await reader.next();
        expect(frame).toMatchObject({ id: item.cursor, event: item.type });
        expect(JSON.parse(frame?.data ?? '')).toEqual(item);
      }
      reader.close();
    });

    test('a reader that drops and resumes at every single event sees exactly what items shows', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      let reader = await tenant.events(id);
      const live: unknown[] = [];
      const { turnId } = await tenant.play(id, PLAY);
      for (let ended = false; !ended;) {
        const frame = await reader.find(({ id: cursor }) => cursor !== null);
        live.push(JSON.parse(frame.data));
        ended = frame.event === 'turn.completed';
        // The other node each time: whatever it knows by now, nothing may be lost or doubled.
        reader = await reader.resume(target().nodes[live.length % 2 === 0 ? 0 : 1].url);
      }
      reader.close();
      const items = await tenant.items(id);
      expect(live).toEqual(items);
      expect(items.at(-1)).toMatchObject({ turnId, type: 'turn.completed' });
    });

    test('resuming behind any record gives the rest, by header and by cursor; the cursor beats the header', async () => {
      const { tenant, id, items } = await played();
      const last = items.at(-1)?.cursor ?? '';
      for (const [i, { cursor }] of items.slice(0, -1).entries()) {
        const rest = items.slice(i + 1);
        expect(await reading(await tenant.events(id, { lastEventId: cursor }), rest.length)).toEqual(rest);
        expect(await reading(await tenant.events(id, { cursor, lastEventId: last }), rest.length)).toEqual(rest);
      }
    });

    test('behind the last record, and from latest on, comes only what is new', async () => {
      const { tenant, id, items } = await played();
      const readers = [
        await tenant.events(id, { cursor: 'latest' }),
        await tenant.at(target().nodes[1]).events(id, { cursor: 'latest' }),
        await tenant.events(id, { lastEventId: items.at(-1)?.cursor ?? '' }),
        await tenant.events(id, { cursor: 'latest', lastEventId: items[0]?.cursor ?? '' }),
      ];
      const { cursor } = await tenant.cancel(id);
      for (const reader of readers) {
        const records = await reading(reader, 1);
        expect(records.map((record) => record.cursor)).toEqual([cursor]);
      }
    });

    test('the agent filter drops what is of no such agent', async () => {
      const { tenant, id } = await played();
      const reader = await tenant.events(id, { agent: 'child' });
      await tenant.cancel(id);
      const whole = await tenant.events(id, { cursor: 'latest' });
      const { cursor } = await tenant.cancel(id);
      expect((await reading(whole, 1))[0]?.cursor).toBe(cursor);
      expect(reader.records).toEqual([]);
      reader.close();
    });

    test('HEAD answers with the headers and ends', async () => {
      const { tenant, id } = await played();
      const answer = await tenant.request({ method: 'HEAD', path: `/v1/sessions/${id}/events` });
      expect(answer.status).toBe(200);
      expect(answer.headers['content-type']).toMatch(/^text\/event-stream/);
      expect(answer.headers['cache-control']).toBe('no-store');
      expect(answer.text).toBe('');
    });

    test('a silent stream is kept alive by comments, which are no events', async () => {
      const { tenant, id, items } = await played();
      const reader = await tenant.events(id, { cursor: 'latest' });
      expect(await reader.comment(20_000)).toBe('keepalive');
      expect(reader.frames.map(({ event }) => event)).toEqual(['ready']);
      const { cursor } = await tenant.cancel(id);
      expect((await reading(reader, 1)).map((record) => record.cursor)).toEqual([cursor]);
      expect(cursor).not.toBe(items.at(-1)?.cursor);
    });

    test('20 readers at two nodes, some late, all see the same', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const early = await Promise.all(
        Array.from({ length: 10 }, async (_, i) => await tenant.at(target().nodes[i % 2 === 0 ? 0 : 1]).events(id)),
      );
      const { turnId } = await tenant.play(
        id,
        PLAY.map((step) => ({ ...step, delayMs: 5 })),
      );
      const late = await Promise.all(
        Array.from({ length: 10 }, async (_, i) => await tenant.at(target().nodes[i % 2 === 0 ? 0 : 1]).events(id)),
      );
      await tenant.turnEnd(id, turnId);
      const items = await tenant.items(id);
      for (const reader of [...early, ...late]) expect(await reading(reader, items.length)).toEqual(items);
    });
  });
}
