import { beforeAll, describe, expect, test } from 'vitest';
import { ArtifactClient, sha256 } from '../../support/artifacts.ts';
import type { ArtifactView } from '../../support/artifacts.ts';
import type { EventRecord, TenantClient } from '../../support/client.ts';
import { unzipped } from '../../support/zip.ts';
import { fresh, newTenant } from './target.ts';
import type { HttpTarget } from './target.ts';

const TURN_MS = 60_000;

/** What turns leave in `/workspace/outputs`, at two nodes. */
export function sandboxOutputsSuite(target: () => HttpTarget): void {
  describe('outputs', () => {
    let tenant: TenantClient;
    let files: ArtifactClient;
    let there: ArtifactClient;

    beforeAll(async () => {
      tenant = await newTenant(target());
      await tenant.saveAgent('coder', { sandboxTools: true });
      files = new ArtifactClient(tenant);
      there = new ArtifactClient(tenant.at(target().nodes[1]));
    });

    const bash = (command: string) => ({ toolCalls: [{ name: 'bash', input: { command } }] });

    async function opened(body: object = {}): Promise<{ id: string; sandboxId: string }> {
      const id = fresh('s');
      const { sandboxId } = await tenant.openSession(id, { agentId: 'coder', ...body });
      return { id, sandboxId: sandboxId ?? '' };
    }

    /** The records of a turn that runs these scripts, one a step. */
    async function ran(id: string, ...scripts: string[]): Promise<EventRecord[]> {
      const { turnId } = await tenant.play(id, [...scripts.map(bash), { text: 'done' }]);
      const end = await tenant.turnEnd(id, turnId, TURN_MS);
      expect(end.type, JSON.stringify(end.payload)).toBe('turn.completed');
      return (await tenant.items(id)).filter((item) => item.turnId === turnId);
    }

    async function outputsOf(id: string): Promise<ArtifactView> {
      const [outputs] = await there.list(`?sessionId=${id}`);
      if (outputs === undefined) throw new Error('the session has no artifact');
      return outputs;
    }

    test('are a folder artifact before the turn completes, with a new version when they changed', async () => {
      const { id, sandboxId } = await opened();
      expect((await ran(id, 'echo no outputs > a')).map(({ type }) => type)).not.toContain('artifact.created');
      const first = await ran(id, 'mkdir -p outputs/data; echo 1 > outputs/report.md; echo x > outputs/data/x.csv');
      expect(first.slice(-3).map(({ type }) => type)).toEqual([
        'message.assistant',
        'artifact.created',
        'turn.completed',
      ]);
      const { artifactId } = await outputsOf(id);
      expect(first.at(-2)?.payload).toMatchObject({
        ...{ artifactId, kind: 'folder', name: 'outputs', version: 1, source: 'export', size: 4 },
      });
      const unchanged = await ran(id, 'echo elsewhere > b');
      expect(unchanged.map(({ type }) => type)).not.toContain('artifact.created');
      await ran(id, 'echo 2 > outputs/report.md; rm outputs/data/x.csv; echo y > outputs/y.txt');
      expect(await there.get(artifactId)).toMatchObject({ kind: 'folder', name: 'outputs', latestVersion: 2 });
      const { files: tree } = await there.tree(artifactId);
      expect(tree.map(({ path, size, contentType }) => [path, size, contentType])).toEqual([
        ['report.md', 2, 'text/markdown'],
        ['y.txt', 2, 'text/plain'],
      ]);
      expect(tree[0]?.sha256).toBe(sha256('2\n'));
      const file = await there.tenant.request({ path: `/v1/artifacts/${artifactId}/versions/1/files/data/x.csv` });
      expect(file.text).toBe('x\n');
      const zip = await there.tenant.request({ path: `/v1/artifacts/${artifactId}/versions/2/zip` });
      expect(await unzipped(zip.bytes)).toEqual(
        new Map([
          ['report.md', '2\n'],
          ['y.txt', 'y\n'],
        ]),
      );
      const diff = await there.diff(artifactId, 2);
      expect([diff.added, diff.removed, diff.changed].map((list) => list.map(({ path }) => path))).toEqual([
        ['y.txt'],
        ['data/x.csv'],
        ['report.md'],
      ]);
      // What a client puts there counts at the end of the next turn.
      const put = { method: 'PUT', path: `/v1/sandboxes/${sandboxId}/files/outputs/put`, body: Buffer.from('put') };
      expect((await there.tenant.request(put)).status).toBe(200);
      await ran(id);
      expect((await there.get(artifactId)).latestVersion).toBe(3);
    });

    test('are kept by each session of a shared sandbox, and outlive its files', async () => {
      const box = fresh('box');
      await tenant.request({ method: 'PUT', path: `/v1/sandboxes/${box}`, body: {} });
      const [a, b] = [await opened({ sandbox: { id: box } }), await opened({ sandbox: { id: box } })];
      await ran(a.id, 'mkdir outputs; echo shared > outputs/f');
      await ran(b.id, 'cat outputs/f');
      const [one, other] = [await outputsOf(a.id), await outputsOf(b.id)];
      expect(one.artifactId).not.toBe(other.artifactId);
      expect((await tenant.request({ method: 'DELETE', path: `/v1/sandboxes/${box}` })).status).toBe(200);
      const path = `/v1/artifacts/${other.artifactId}/versions/latest/files/f`;
      expect((await there.tenant.request({ path })).text).toBe('shared\n');
    });

    test('files of a message are below inputs before the first call, and a turn may change them', async () => {
      const { id, sandboxId } = await opened();
      const { artifact } = await files.upload({ name: 'data.csv' }, Buffer.from('1\n2\n'));
      const large = await files.upload({ name: 'large.bin' }, Buffer.alloc(10_485_761));
      const ask = async (script: string, artifactIds: string[]) => {
        const steps = [bash(script), { text: 'done' }];
        const parts = [
          { type: 'text', text: JSON.stringify({ fixture: steps }) },
          ...artifactIds.map((artifactId) => ({ type: 'file', artifactId })),
        ];
        const { json } = await tenant.command(id, { type: 'message', parts });
        const turnId = String(Reflect.get(Object(json), 'turnId'));
        expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
        return (await tenant.items(id)).filter((item) => item.turnId === turnId);
      };
      const items = await ask('cat inputs/data.csv; echo 3 >> inputs/data.csv', [
        artifact.artifactId,
        large.artifact.artifactId,
      ]);
      const [state] = items.flatMap((item) => (item.type === 'sandbox.state' ? [item.payload] : []));
      expect(state).toMatchObject({
        state: 'running',
        reason: expect.stringMatching(/^inputs were left out: inputs\/large.bin has 10485761 bytes/) as string,
      });
      const outputs = items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));
      expect(outputs).toMatchObject([{ output: { stdout: '1\n2\n' } }]);
      const path = `/v1/sandboxes/${sandboxId}/files/inputs/data.csv`;
      expect((await there.tenant.request({ path })).text).toBe('1\n2\n3\n');
      // Without files there are those of before; with them, they are as the message has them.
      await ran(id, 'cat inputs/data.csv');
      expect((await there.tenant.request({ path })).text).toBe('1\n2\n3\n');
      await ask('ls', [artifact.artifactId]);
      expect((await there.tenant.request({ path })).text).toBe('1\n2\n');
    });

    test("past the tenant's total the turn completes and says so, and the next one exports them", async () => {
      const { id, sandboxId } = await opened();
      // What the files take where the session works is held by then.
      await ran(id, 'printf 0123456789abcdef > large');
      await files.limit({ totalBytes: (await files.use()).usedBytes + 10 });
      const before = await files.use();
      const items = await ran(id, 'mkdir outputs; mv large outputs/large');
      const states = items.flatMap((item) => (item.type === 'sandbox.state' ? [item.payload] : []));
      expect(states.at(-1)).toMatchObject({
        sandboxId,
        reason: expect.stringMatching(/^outputs were not exported: limit_exceeded: /) as string,
      });
      expect(items.map(({ type }) => type)).not.toContain('artifact.created');
      expect(await files.use()).toEqual(before);
      await files.limit({ totalBytes: 100_000_000 });
      await ran(id);
      expect(await outputsOf(id)).toMatchObject({ latestVersion: 1 });
      expect((await files.use()).usedBytes).toBe(before.usedBytes + 16);
    });
  });
}
