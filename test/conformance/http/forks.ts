import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { ArtifactClient } from '../../support/artifacts.ts';
import { until } from '../../support/wait-until.ts';
import { reading } from './fork-reading.ts';
import { bare, CALL, fork, parentAt, post, remove, said } from './fork-world.ts';
import type { Forked } from './fork-world.ts';
import { fresh, historyHolds, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** Forks (docs/decisions/0013). */
export function forkSuite(target: () => HttpTarget): void {
  const parent = async (): Promise<Forked> => await parentAt(target());

  describe('a fork', () => {
    test('of all there is: the same history under its own name, everything else fresh', async () => {
      const { tenant, other, id, items } = await parent();
      const child = await fork(other, id);
      const inherited = await tenant.items(child.id);
      expect(inherited.map(bare)).toEqual(items.map(bare));
      historyHolds(inherited, child.id);
      const original = await tenant.session(id);
      const { agentId, agentVersion, manifestHash, subject, labels, info } = original;
      expect(child).toMatchObject({ agentId, agentVersion, manifestHash, subject, labels, info });
      expect(child).toMatchObject({ status: 'idle', activeTurnId: null, lastTurn: null, waits: [] });
      expect(child.usage.totalTokens).toBe(0);
      expect(child.cursor).toBe(inherited.at(-1)?.cursor);
      expect(await tenant.session(child.id)).toEqual(child);
      expect((await tenant.calls(child.id)).calls).toEqual([]);
      const own = new Set(items.map(({ cursor }) => cursor));
      expect(inherited.some(({ cursor }) => own.has(cursor))).toBe(false);
    });

    test('at every record, and both go on without the other', async () => {
      const { tenant, other, id, items } = await parent();
      const children: string[] = [];
      for (const { cursor } of items) children.push((await fork(tenant, id, { cursor })).id);
      await said(tenant, id, 'the parent goes on');
      for (const [i, child] of children.entries()) {
        expect((await other.items(child)).map(bare)).toEqual(items.slice(0, i + 1).map(bare));
        const end = await said(other, child, `child ${i}`);
        expect(end.payload).toMatchObject({ output: `echo: child ${i}` });
        const all = await tenant.items(child);
        expect(all.slice(0, i + 1).map(bare)).toEqual(items.slice(0, i + 1).map(bare));
        expect(all.slice(i + 1).map(({ type }) => type)).toEqual([
          'command.message',
          'message.assistant',
          'turn.completed',
        ]);
        historyHolds(all, child);
      }
      expect((await tenant.items(id)).length).toBe(items.length + 3);
    });

    test('lists the artifacts that its history begins with, and its own', async () => {
      const { tenant, other, id } = await parent();
      const files = new ArtifactClient(tenant);
      const make = async (sessionId: string, name: string): Promise<void> => {
        await files.upload({ name, sessionId }, Buffer.from(name));
        await until('the history has it', async () =>
          (await tenant.items(sessionId)).some(({ payload }) => Object(payload).name === name),
        );
      };
      const names = async (sessionId: string): Promise<string[]> =>
        (await new ArtifactClient(other).list(`?sessionId=${encodeURIComponent(sessionId)}`)).map(({ name }) => name);
      await make(id, 'before');
      const child = await fork(tenant, id);
      await make(id, 'after');
      await make(child.id, 'own');
      const grandchild = await fork(other, child.id);
      // Another node than the one that took the uploads: its lists may be behind, and get there.
      const lists = async (sessionId: string, wanted: readonly string[]): Promise<void> => {
        let last: readonly string[] = [];
        await until('the list has as many', async () => (last = await names(sessionId)).length >= wanted.length);
        expect(last).toEqual(wanted);
      };
      await lists(child.id, ['before', 'own']);
      await lists(grandchild.id, ['before', 'own']);
      await lists(id, ['before', 'after']);
    });

    test('in the middle of a turn: the child is idle and speaks, the turn goes on', async () => {
      const { tenant, other, id } = await parent();
      const { turnId } = await tenant.play(id, [CALL, { text: 'late', delayMs: 60_000 }]);
      await until('the first step is over', async () =>
        (await tenant.items(id)).some((item) => item.turnId === turnId && item.type === 'message.assistant'),
      );
      const child = await fork(other, id);
      expect(child).toMatchObject({ status: 'idle', activeTurnId: null });
      expect((await said(other, child.id, 'me')).payload).toMatchObject({ output: 'echo: me' });
      expect(await tenant.session(id)).toMatchObject({ status: 'running', activeTurnId: turnId });
      await tenant.cancel(id);
      expect((await tenant.turnEnd(id, turnId)).type).toBe('turn.cancelled');
    });

    test('of an empty session is an empty session', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const child = await fork(tenant, id);
      expect(child.cursor).toBeNull();
      const page = shaped(await tenant.request({ path: `/v1/sessions/${child.id}/items` }), 200, wire.items);
      expect(page).toEqual({ items: [], cursor: null, hasMore: false });
      await said(tenant, child.id, 'first');
      expect((await tenant.items(child.id)).length).toBe(3);
      expect(await tenant.items(id)).toEqual([]);
    });
  });

  reading(target);
  refusals(target, parent);
  deletion(target);
}

function refusals(target: () => HttpTarget, parent: () => Promise<Forked>): void {
  describe('a fork is', () => {
    test('idempotent: the same key and body on any node, whatever happened since', async () => {
      const { tenant, other, id, items } = await parent();
      const body = { idempotencyKey: fresh('k'), id: fresh('f') };
      const first = await fork(tenant, id, body);
      await said(tenant, id, 'on');
      expect(await fork(other, id, { ...body, requestId: 'again' })).toEqual(first);
      expect((await tenant.items(first.id)).length).toBe(items.length);
      refused(await post(other, id, { ...body, cursor: items[0]?.cursor }), 409, 'idempotency_conflict');
      refused(await post(other, id, { ...body, id: fresh('f') }), 409, 'idempotency_conflict');
      // The key space is that of the session's commands; the child's is its own.
      const command = { type: 'message', content: 'x' };
      const { idempotencyKey } = body;
      refused(await tenant.command(id, command, { idempotencyKey }), 409, 'idempotency_conflict');
      expect((await tenant.command(first.id, command, { idempotencyKey })).status).toBe(202);
    });

    test('one of many that race for an id', async () => {
      const { tenant, other, id } = await parent();
      const child = fresh('f');
      const same = { idempotencyKey: fresh('k'), id: child };
      const answers = await Promise.all(
        Array.from(
          { length: 12 },
          async (_, i) => await post(i % 2 === 0 ? tenant : other, id, i < 6 ? same : { id: child }),
        ),
      );
      const made = answers.filter(({ status }) => status === 201);
      expect(made.length === 6 || made.length === 1, answers.map(({ text }) => text).join('\n')).toBe(true);
      for (const answer of answers) if (answer.status !== 201) refused(answer, 409, 'conflict');
    });

    test('refused for a taken id, a place that is none, a session that is not there', async () => {
      const { tenant, id, items } = await parent();
      const taken = await newSession(tenant);
      for (const name of [taken, id]) refused(await post(tenant, id, { id: name }), 409, 'conflict');
      const elsewhere = await tenant.cancel(taken);
      for (const cursor of ['x', 'latest', elsewhere.cursor ?? '']) {
        refused(await post(tenant, id, { cursor }), 400, 'cursor_invalid');
      }
      const child = await fork(tenant, id);
      const [inherited] = await tenant.items(child.id);
      refused(await post(tenant, id, { cursor: inherited?.cursor }), 400, 'cursor_invalid');
      refused(await post(tenant, child.id, { cursor: items[0]?.cursor }), 400, 'cursor_invalid');
      refused(await post(tenant, 'none', {}), 404, 'not_found');
      refused(await post(tenant.as('ann'), id, {}), 404, 'not_found');
      expect((await tenant.request({ path: `/v1/sessions/${child.id}` })).status).toBe(200);
    });

    test("a subject's, of its own", async () => {
      const ann = (await newTenant(target())).as('ann');
      const id = await newSession(ann);
      await said(ann, id, 'mine');
      const child = await fork(ann, id);
      expect(child.subject).toBe('ann');
      expect((await ann.items(child.id)).length).toBe(3);
      refused(await ann.as('ben').request({ path: `/v1/sessions/${child.id}/items` }), 404, 'not_found');
    });

    test('at most 32 sessions deep, and deeper again at an earlier place', async () => {
      const tenant = await newTenant(target());
      let id = await newSession(tenant);
      for (let depth = 0; depth < 32; depth += 1) {
        await tenant.cancel(id);
        ({ id } = await fork(tenant, id));
      }
      // Nothing of its own yet: it is left out of the chain.
      ({ id } = await fork(tenant, id));
      await tenant.cancel(id);
      const items = await tenant.items(id, { limit: 5 });
      expect(items.length).toBe(33);
      expect(await tenant.items(id, { limit: 5, order: 'desc' })).toEqual(items.toReversed());
      const reader = await tenant.events(id);
      expect(await reader.collect(33)).toEqual(items);
      reader.close();
      expect(refused(await post(tenant, id, {}), 409, 'limit_exceeded').details).toEqual({
        limit: 'forkDepth',
        count: 32,
      });
      await fork(tenant, id, { cursor: items[31]?.cursor });
    });
  });
}

function deletion(target: () => HttpTarget): void {
  describe('deleting', () => {
    test('a session with forks is refused until they are gone; their ids are free again', async () => {
      const tenant = await newTenant(target());
      const other = tenant.at(target().nodes[1]);
      const id = await newSession(tenant);
      await said(tenant, id, 'one');
      const body = { idempotencyKey: fresh('k'), id: fresh('f') };
      const child = await fork(tenant, id, body);
      const [first] = await tenant.items(child.id);
      const grandchild = await fork(other, child.id);
      for (const [client, name, forks] of [
        [other, id, [child.id]],
        [tenant, child.id, [grandchild.id]],
      ] as const) {
        expect(refused(await remove(client, name), 409, 'conflict').details).toEqual({ forks, count: 1 });
      }
      expect((await tenant.items(grandchild.id)).length).toBe(3);
      shaped(await remove(other, grandchild.id), 200, wire.deleted);
      shaped(await remove(tenant, child.id), 200, wire.deleted);
      // The fork that the key stands for is gone, and stays so.
      refused(await post(other, id, body), 404, 'not_found');
      await said(tenant, id, 'two');
      const again = await fork(other, id, { id: child.id });
      expect((await tenant.items(again.id)).length).toBe(6);
      for (const route of ['items', 'events']) {
        const answer = await tenant.request({ path: `/v1/sessions/${child.id}/${route}?cursor=${first?.cursor}` });
        refused(answer, 400, 'cursor_invalid');
      }
      shaped(await remove(tenant, again.id), 200, wire.deleted);
      shaped(await remove(other, id), 200, wire.deleted);
      refused(await tenant.request({ path: `/v1/sessions/${id}` }), 404, 'not_found');
    });
  });
}
