import { beforeAll, describe, expect, test } from 'vitest';
import * as boxes from '#src/http/wire/sandboxes.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { ArtifactClient } from '../../support/artifacts.ts';
import type { EventRecord, TenantClient } from '../../support/client.ts';
import { fresh, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const TURN_MS = 60_000;

/** Forks of sessions that work in sandboxes, at two nodes. */
export function sandboxForkSuite(target: () => HttpTarget): void {
  describe('a fork', () => {
    let tenant: TenantClient;
    let there: TenantClient;

    beforeAll(async () => {
      tenant = await newTenant(target());
      there = tenant.at(target().nodes[1]);
      await tenant.saveAgent('coder', { sandboxTools: ['bash'] });
    });

    const bash = (command: string) => ({ name: 'bash', input: { command } });

    async function opened(body: object = {}): Promise<{ id: string; sandboxId: string }> {
      const id = fresh('s');
      const { sandboxId } = await tenant.openSession(id, { agentId: 'coder', ...body });
      return { id, sandboxId: sandboxId ?? '' };
    }

    async function ran(id: string, ...commands: string[]): Promise<EventRecord[]> {
      const { turnId } = await tenant.play(id, [{ toolCalls: commands.map(bash) }, { text: 'done' }]);
      expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
      return (await tenant.items(id)).filter((item) => item.turnId === turnId);
    }

    const ask = async (parent: string, child: string, record?: { readonly cursor: string }) =>
      await there.request({
        method: 'POST',
        path: `/v1/sessions/${encodeURIComponent(parent)}/fork`,
        body: { requestId: 'r', idempotencyKey: child, id: child, ...(record && { cursor: record.cursor }) },
      });

    async function forked(parent: string, record?: { readonly cursor: string }) {
      const child = fresh('f');
      const { sandboxId } = shaped(await ask(parent, child, record), 201, wire.session);
      return { id: child, sandboxId: sandboxId ?? '' };
    }

    interface Moment {
      readonly sessionId: string;
      readonly cursor: string;
    }

    const treeAt = async (sandboxId: string, query: Partial<Moment>, by = tenant) =>
      await by.request({ path: `/v1/sandboxes/${sandboxId}/tree?${new URLSearchParams(query).toString()}` });

    /** Every file of a sandbox, by path: as they are, or as they were at a record. */
    async function filesOf(sandboxId: string, moment?: Moment): Promise<Record<string, string>> {
      const past = moment && { sessionId: moment.sessionId, cursor: moment.cursor };
      const query = new URLSearchParams(past).toString();
      const { files } = shaped(await treeAt(sandboxId, past ?? {}), 200, boxes.tree);
      const texts = files.map(async ({ path }) => {
        const file = await there.request({ path: `/v1/sandboxes/${sandboxId}/files/${path}?${query}` });
        return [path, file.text] as const;
      });
      return Object.fromEntries(await Promise.all(texts));
    }

    test('has the files of its record, in a sandbox of its own, and so has a fork of it', async () => {
      const { id, sandboxId } = await opened();
      const first = await ran(id, 'echo 1 > n', 'echo 2 > n');
      await ran(id, ...[3, 4, 5, 6, 7].map((n) => `echo ${n} > n`));
      const items = await tenant.items(id);
      let n = 0;
      for (const item of items) {
        if (item.type === 'sandbox.exec') n += 1;
        const fork = await forked(id, item);
        const then = n === 0 ? {} : { n: `${n}\n` };
        expect(await filesOf(fork.sandboxId), `at ${item.type} of call ${n}`).toEqual(then);
        expect(await filesOf(sandboxId, item), `then, at ${item.type} of call ${n}`).toEqual(then);
        await tenant.request({ method: 'DELETE', path: `/v1/sessions/${fork.id}` });
      }
      expect(n).toBe(7);
      const child = await forked(id, first.at(-1));
      await ran(child.id, 'cat n; echo child > n');
      expect(await filesOf(child.sandboxId)).toEqual({ n: 'child\n' });
      expect(await filesOf(sandboxId)).toEqual({ n: '7\n' });
      const inherited = (await tenant.items(child.id)).filter(({ type }) => type === 'sandbox.exec');
      expect(inherited).toHaveLength(3);
      for (const [i, text] of ['1\n', '2\n', 'child\n'].entries()) {
        const grandchild = await forked(child.id, inherited[i]);
        expect(await filesOf(grandchild.sandboxId)).toEqual({ n: text });
        expect(await filesOf(child.sandboxId, inherited[i])).toEqual({ n: text });
      }
      expect(await filesOf((await forked(child.id)).sandboxId)).toEqual({ n: 'child\n' });
    });

    test('and its sandbox at a record are refused where the record is of another session, or half named', async () => {
      const { id, sandboxId } = await opened();
      const [message] = await ran(id, 'echo 1 > n');
      const cursor = message?.cursor ?? '';
      const other = await opened();
      await ran(other.id, 'true');
      const [foreign] = await tenant.items(other.id);
      refused(await treeAt(other.sandboxId, { sessionId: id, cursor }), 404, 'not_found');
      refused(await treeAt(sandboxId, { sessionId: id, cursor: foreign?.cursor ?? '' }), 400, 'cursor_invalid');
      refused(await treeAt(sandboxId, { sessionId: 'absent', cursor }), 400, 'cursor_invalid');
      for (const half of [{ sessionId: id }, { cursor }])
        refused(await treeAt(sandboxId, half), 400, 'invalid_request');
      // Of somebody else's session nothing is told to whoever has a sandbox.
      const ada = tenant.as('ada', 'sandboxes:write sessions:own');
      const box = fresh('box');
      await ada.request({ method: 'PUT', path: `/v1/sandboxes/${box}`, body: {} });
      const theirs = await treeAt(box, { sessionId: id, cursor }, ada);
      refused(theirs, 404, 'not_found');
      expect(theirs.text).not.toContain(sandboxId);
    });

    test('of now has what clients have put there, and before the first call what it began with', async () => {
      const files = new ArtifactClient(tenant);
      const { artifact } = await files.upload({ name: 'seed' }, Buffer.from('seed'));
      const source = { artifactId: artifact.artifactId };
      const { id, sandboxId } = await opened({ sandbox: { kind: 'virtual', spec: { source } } });
      const [message] = await ran(id, 'rm seed; echo made > made');
      const put = { method: 'PUT', path: `/v1/sandboxes/${sandboxId}/files/put`, body: Buffer.from('put') };
      expect((await tenant.request(put)).status).toBe(200);
      expect(await filesOf((await forked(id)).sandboxId)).toEqual({ made: 'made\n', put: 'put' });
      expect(await filesOf((await forked(id, message)).sandboxId)).toEqual({ seed: 'seed' });
    });

    test('of a session that shares its sandbox has its own; one without any has none', async () => {
      const box = fresh('box');
      await tenant.request({ method: 'PUT', path: `/v1/sandboxes/${box}`, body: {} });
      const shares = await opened({ sandbox: { id: box } });
      await ran(shares.id, 'echo shared > f');
      const fork = await forked(shares.id);
      expect(fork.sandboxId).not.toBe(box);
      expect(await filesOf(fork.sandboxId)).toEqual({ f: 'shared\n' });
      // What its history names is there, although the sandbox is not.
      await tenant.request({ method: 'DELETE', path: `/v1/sandboxes/${box}` });
      expect(await filesOf((await forked(shares.id)).sandboxId)).toEqual({ f: 'shared\n' });
      const bare = await opened({ sandbox: false });
      const child = fresh('f');
      expect(shaped(await ask(bare.id, child), 201, wire.session).sandboxId).toBeNull();
    });

    test('that is asked for again is the same; past the limit it is refused, and nothing is left of it', async () => {
      const alone = await newTenant(target());
      await alone.saveAgent('coder', { sandboxTools: ['bash'] });
      await alone.openSession('parent', { agentId: 'coder' });
      const fork = async (child: string) =>
        await alone.request({
          method: 'POST',
          path: '/v1/sessions/parent/fork',
          body: { requestId: 'r', idempotencyKey: child, id: child },
        });
      const one = shaped(await fork('one'), 201, wire.session);
      expect(shaped(await fork('one'), 201, wire.session).sandboxId).toBe(one.sandboxId);
      const shown = shaped(await alone.request({ path: '/v1/sandboxes' }), 200, boxes.sandboxList);
      expect(shown.sandboxes).toHaveLength(2);
      for (let n = shown.sandboxes.length; n < 100; n++) {
        await alone.request({ method: 'PUT', path: `/v1/sandboxes/more-${n}`, body: {} });
      }
      const { details } = refused(await fork('two'), 409, 'limit_exceeded');
      expect(details).toEqual({ limit: 'sandboxes' });
      await alone.request({ method: 'DELETE', path: '/v1/sandboxes/more-2' });
      shaped(await fork('two'), 201, wire.session);
      for (const id of ['one', 'two', 'parent']) {
        expect((await alone.request({ method: 'DELETE', path: `/v1/sessions/${id}` })).status).toBe(200);
      }
    });
  });
}
