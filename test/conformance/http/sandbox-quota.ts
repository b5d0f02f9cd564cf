import { beforeAll, describe, expect, test } from 'vitest';
import { ArtifactClient } from '../../support/artifacts.ts';
import type { EventRecord, TenantClient } from '../../support/client.ts';
import { until } from '../../support/wait-until.ts';
import { fresh, newTenant, refused } from './target.ts';
import type { HttpTarget } from './target.ts';

const TURN_MS = 60_000;
/** More than any step in which bytes are held. */
const LARGE = 1_000_000;

/** What workspaces hold of the total of their tenant, at two nodes. */
export function sandboxQuotaSuite(target: () => HttpTarget): void {
  describe('the total of a tenant', () => {
    let tenant: TenantClient;
    let files: ArtifactClient;
    let there: ArtifactClient;

    beforeAll(async () => {
      tenant = await newTenant(target());
      await tenant.saveAgent('coder', { sandboxTools: true });
      files = new ArtifactClient(tenant);
      there = new ArtifactClient(tenant.at(target().nodes[1]));
    });

    async function opened(body: object = {}): Promise<{ id: string; path: string }> {
      const id = fresh('s');
      const { sandboxId } = await tenant.openSession(id, { agentId: 'coder', ...body });
      return { id, path: `/v1/sandboxes/${sandboxId ?? ''}` };
    }

    async function ran(id: string, ...scripts: string[]): Promise<EventRecord[]> {
      const calls = scripts.map((command) => ({ toolCalls: [{ name: 'bash', input: { command } }] }));
      const { turnId } = await tenant.play(id, [...calls, { text: 'done' }]);
      expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
      return (await tenant.items(id)).filter((item) => item.turnId === turnId);
    }

    const outcomes = (items: readonly EventRecord[]) =>
      items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));
    const used = async () => (await there.use()).usedBytes;
    const write = (bytes: number, name: string) => `printf "%${bytes}s" x > ${name}`;
    const remove = async (path: string) =>
      expect((await there.tenant.request({ method: 'DELETE', path })).status).toBe(200);
    const freed = async (bytes: number) =>
      await until(`${bytes} bytes are used`, async () => (await used()) === bytes, TURN_MS);

    test('counts what sandboxes keep, with their history, once; a fork adds what it adds; all goes with them', async () => {
      const before = await used();
      const { id } = await opened();
      await ran(id, write(LARGE, 'a'), 'rm a');
      const after = await used();
      expect(after - before).toBeGreaterThanOrEqual(LARGE);
      expect(after - before).toBeLessThan(2 * LARGE);
      // The same bytes again are stored under the hash that they have, as long as a file has it.
      const child = fresh('fork');
      const body = { requestId: 'r', idempotencyKey: child, id: child };
      expect((await tenant.request({ method: 'POST', path: `/v1/sessions/${id}/fork`, body })).status).toBe(201);
      expect(await used()).toBe(after);
      await ran(child, write(2 * LARGE, 'b'));
      expect((await used()) - after).toBeGreaterThanOrEqual(2 * LARGE);
      await remove(`/v1/sessions/${child}`);
      await freed(after);
      await remove(`/v1/sessions/${id}`);
      await freed(before);
    });

    test('past it a call fails and changes nothing, and the next one that fits does not', async () => {
      const { id, path } = await opened();
      await ran(id, 'echo kept > f');
      const limits = await files.limit({ totalBytes: (await used()) + LARGE });
      const items = await ran(id, `echo lost > f; ${write(2 * LARGE, 'large')}`, 'cat f; ls; echo fits > g');
      expect(outcomes(items)).toMatchObject([
        { kind: 'failed', code: 'limit_exceeded', message: expect.stringContaining('storage is full') as string },
        { kind: 'completed', output: { stdout: 'kept\nf\n' } },
      ]);
      expect(items.flatMap((item) => (item.type === 'sandbox.exec' ? [item.payload.outcome] : []))).toEqual([
        'failed',
        'completed',
      ]);
      expect((await there.tenant.request({ path: `${path}/files/g` })).text).toBe('fits\n');
      const put = { method: 'PUT', path: `${path}/files/put`, body: Buffer.alloc(2 * LARGE) };
      const full = refused(await there.tenant.request(put), 413, 'limit_exceeded');
      expect(full.details).toMatchObject({ limit: 'total', limitBytes: limits.limits.totalBytes });
      expect((await there.tenant.request({ path: `${path}/files/put` })).status).toBe(404);
      expect(await used()).toBeLessThanOrEqual(limits.limits.totalBytes);
      await files.limit({ totalBytes: 100 * LARGE });
      expect((await there.tenant.request(put)).status).toBe(200);
    });

    test('files of a message that do not fit are left out, and the turn says so', async () => {
      const { id } = await opened();
      const { artifact } = await files.upload({ name: 'large.bin' }, Buffer.alloc(LARGE));
      await files.limit({ totalBytes: (await used()) + LARGE / 2 });
      const script = { fixture: [{ toolCalls: [{ name: 'bash', input: { command: 'ls' } }] }, { text: 'done' }] };
      const parts = [
        { type: 'text', text: JSON.stringify(script) },
        { type: 'file', artifactId: artifact.artifactId },
      ];
      const { json } = await tenant.command(id, { type: 'message', parts });
      const turnId = String(Reflect.get(Object(json), 'turnId'));
      expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
      const items = await tenant.items(id);
      expect(outcomes(items)).toMatchObject([{ kind: 'completed', output: { stdout: '' } }]);
      const [begun] = items.flatMap((item) => (item.type === 'sandbox.state' ? [item.payload] : []));
      expect(begun?.reason).toMatch(/^inputs were left out: .*storage is full/);
      await files.limit({ totalBytes: 100 * LARGE });
    });

    test('sandboxes at the same time hold no more than it together', async () => {
      const sessions = await Promise.all(Array.from({ length: 6 }, async () => await opened()));
      const before = await used();
      const totalBytes = before + 3 * LARGE;
      await files.limit({ totalBytes });
      const ends = await Promise.all(sessions.map(async ({ id }) => outcomes(await ran(id, write(LARGE, 'a')))));
      const kinds = ends.flat().map((outcome) => Reflect.get(Object(outcome), 'kind') as unknown);
      expect(kinds).toHaveLength(6);
      expect(kinds.filter((kind) => kind === 'completed')).toHaveLength(2);
      expect(await used()).toBeLessThanOrEqual(totalBytes);
      await files.limit({ totalBytes: 100 * LARGE });
      for (const { id } of sessions) await remove(`/v1/sessions/${id}`);
      await freed(before);
    });

    test('what a shared sandbox held is held as long as a session that worked in it is there', async () => {
      const box = fresh('box');
      await tenant.request({ method: 'PUT', path: `/v1/sandboxes/${box}`, body: {} });
      const { id } = await opened({ sandbox: { id: box } });
      await ran(id, write(LARGE, 'a'));
      const after = await used();
      await remove(`/v1/sandboxes/${box}`);
      // Its history has the files, and a fork of it would.
      expect(await used()).toBe(after);
    });
  });
}
