import { randomBytes } from 'node:crypto';
import { parse } from 'content-disposition';
import { beforeAll, describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/artifacts.ts';
import { ArtifactClient, sha256 } from '../../support/artifacts.ts';
import { send } from '../../support/client.ts';
import { unzipped } from '../../support/zip.ts';
import { fresh, historyHolds, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** Files with versions: uploads, reading, comparing, listing, deleting. */
export function artifactSuite(target: () => HttpTarget): void {
  let files: ArtifactClient;
  /** The same tenant at the other node. */
  let there: ArtifactClient;

  beforeAll(async () => {
    const tenant = await newTenant(target());
    files = new ArtifactClient(tenant);
    there = new ArtifactClient(tenant.at(target().nodes[1]));
  });

  const text = (words: string): Buffer => Buffer.from(words);

  describe('an upload', () => {
    test('is there at once, whole and on every node', async () => {
      const session = await newSession(files.tenant);
      const bytes = randomBytes(3_000_000);
      const query = { name: 'data.bin', sessionId: session, label: ['a=b', 'c=d=e'] };
      const { artifact, version } = shaped(
        await files.send(query, bytes, { 'content-type': 'a/b' }),
        201,
        wire.uploaded,
      );
      expect(artifact).toMatchObject({
        kind: 'file',
        name: 'data.bin',
        contentType: 'a/b',
        sessionId: session,
        latestVersion: 1,
        labels: { a: 'b', c: 'd=e' },
      });
      expect(artifact.artifactId).toMatch(/^af_[0-9a-hjkmnp-tv-z]{26}$/);
      const stored = { version: 1, size: bytes.length, sha256: sha256(bytes), contentType: 'a/b', source: 'upload' };
      expect(version).toMatchObject(stored);
      const read = await there.content(artifact.artifactId);
      expect(read.status).toBe(200);
      expect(read.bytes.equals(bytes)).toBe(true);
      expect(await there.get(artifact.artifactId)).toEqual({ ...artifact, versions: [version] });
      expect((await there.list(`?sessionId=${session}`)).map(({ artifactId }) => artifactId)).toEqual([
        artifact.artifactId,
      ]);
      expect(await there.told(session)).toEqual(['artifact.created data.bin 1']);
      historyHolds(await there.tenant.items(session), session);
    });

    test('in chunks without a length, of no bytes, and without a body', async () => {
      const chunks = Array.from({ length: 20 }, () => randomBytes(100_000));
      const { artifact, version } = await files.upload({ name: 'chunks' }, chunks);
      expect(version).toMatchObject({ size: 2_000_000, sha256: sha256(Buffer.concat(chunks)) });
      expect((await files.content(artifact.artifactId)).bytes.equals(Buffer.concat(chunks))).toBe(true);
      for (const body of [text(''), [text('')]]) {
        const empty = await files.upload({ name: 'empty' }, body);
        expect(empty.version).toMatchObject({ size: 0, sha256: sha256('') });
        expect((await files.content(empty.artifact.artifactId)).bytes).toHaveLength(0);
      }
      const path = '/v1/artifacts?name=nothing';
      const nothing = shaped(await files.tenant.request({ method: 'POST', path }), 201, wire.uploaded);
      expect(nothing.version.size).toBe(0);
    });

    test('has the media type of its header, else of its name, else none in particular', async () => {
      const typeOf = async (name: string, type?: string): Promise<string> =>
        (await files.upload({ name }, text('x'), { 'content-type': type })).version.contentType;
      expect(await typeOf('a.png', 'text/plain; charset=utf-8')).toBe('text/plain; charset=utf-8');
      expect(await typeOf('a.json', 'application/json')).toBe('application/json');
      const guessed = async (name: string): Promise<string> => {
        const url = `${target().nodes[0].url}/v1/artifacts?name=${encodeURIComponent(name)}`;
        // Bytes that are sent like this have no media type.
        const answer = await fetch(url, { method: 'POST', headers: files.tenant.headers, body: new Uint8Array(3) });
        expect(answer.status).toBe(201);
        return wire.uploaded.parse(await answer.json()).version.contentType;
      };
      expect(await guessed('a.png')).toBe('image/png');
      expect(await guessed('Bericht.PDF')).toBe('application/pdf');
      expect(await guessed('unknown.zzz')).toBe('application/octet-stream');
      for (const type of ['', 'text', 'text/plain;', 'a/b; c', `a/${'b'.repeat(300)}`]) {
        refused(await files.send({ name: 'a' }, text('x'), { 'content-type': type }), 400, 'invalid_request');
      }
    });

    test('has a name of any script, which comes back as it was and never as a header of its own', async () => {
      const names = [
        'Bericht über Öl & Gas.pdf',
        'отчёт.csv',
        '報告書 2026.xlsx',
        'تقرير.txt',
        '👩‍👩‍👧.png',
        'a"; filename="b.exe',
        "it's 100%.txt",
        '%0d%0aset-cookie: a=b',
        'a;b,c=d.txt',
        'e\u0301',
        '\u202egpj.exe',
        'x'.repeat(255),
      ];
      for (const name of names) {
        const { artifact } = await files.upload({ name }, text(name));
        expect(artifact.name).toBe(name);
        const read = await there.content(artifact.artifactId);
        const disposition = String(read.headers['content-disposition']);
        expect(disposition).toMatch(/^[\x20-\x7e]+$/);
        const { type, parameters } = parse(disposition);
        expect([type, parameters['filename']]).toEqual(['attachment', name]);
        expect(read.headers['set-cookie']).toBeUndefined();
        expect(read.text).toBe(name);
      }
    });

    test('goes on beside a turn, which goes on beside it', async () => {
      const session = await newSession(files.tenant);
      const { turnId } = await files.tenant.play(session, [
        { toolCalls: [{ name: 'absent', input: {} }], delayMs: 300 },
        { text: 'done', delayMs: 300 },
      ]);
      const names = ['a', 'b', 'c', 'd', 'e', 'f'];
      await Promise.all(names.map(async (name) => await there.upload({ name, sessionId: session }, text(name))));
      expect(await files.tenant.turnEnd(session, turnId)).toMatchObject({ type: 'turn.completed' });
      expect((await files.told(session)).toSorted()).toEqual(names.map((name) => `artifact.created ${name} 1`));
      historyHolds(await files.tenant.items(session), session);
    });

    test('acting for a person, goes to one of that person`s sessions', async () => {
      const session = await newSession(files.tenant, { subject: 'ann' });
      const ann = new ArtifactClient(files.tenant.as('ann'));
      const { details } = refused(await ann.send({ name: 'a' }, text('x')), 400, 'invalid_request');
      expect(JSON.stringify(details)).toContain('sessionId');
      const { artifact } = await ann.upload({ name: 'a', sessionId: session }, text('x'));
      expect((await ann.list()).map(({ artifactId }) => artifactId)).toEqual([artifact.artifactId]);
      const other = await files.upload({ name: 'of nobody' }, text('x'));
      const ben = new ArtifactClient(files.tenant.as('ben'));
      expect(await ben.list()).toEqual([]);
      expect(await ben.list(`?sessionId=${session}`)).toEqual([]);
      for (const id of [artifact.artifactId, other.artifact.artifactId]) {
        const same = { 'x-request-id': 'same' };
        const foreign = await ben.tenant.request({ path: `/v1/artifacts/${id}`, headers: same });
        const absent = await ben.tenant.request({ path: '/v1/artifacts/af_absent', headers: same });
        refused(foreign, 404, 'not_found');
        expect(foreign.text).toBe(absent.text);
      }
      refused(await ben.send({ name: 'a', sessionId: session }, text('x')), 404, 'not_found');
      refused(await files.send({ name: 'a', sessionId: 'absent' }, text('x')), 404, 'not_found');
    });
  });

  describe('versions', () => {
    test('are counted up, keep their bytes, and are compared', async () => {
      const session = await newSession(files.tenant);
      const { artifact } = await files.upload({ name: 'a.txt', sessionId: session }, text('one'));
      const id = artifact.artifactId;
      for (const body of [text('two'), [text('th'), text('ree')], text('three')]) {
        shaped(await there.sendVersion(id, body), 201, wire.uploaded);
      }
      const { versions = [], ...rest } = await files.get(id);
      expect(versions.map(({ version }) => version)).toEqual([1, 2, 3, 4]);
      expect(rest).toMatchObject({ latestVersion: 4, name: 'a.txt' });
      for (const [i, words] of ['one', 'two', 'three', 'three'].entries()) {
        expect((await files.content(id, i + 1)).text).toBe(words);
      }
      expect((await files.content(id)).text).toBe('three');
      const entry = (words: string) => ({
        path: 'a.txt',
        size: words.length,
        sha256: sha256(words),
        contentType: expect.any(String),
      });
      expect(await files.diff(id, 1)).toEqual({
        artifactId: id,
        to: 1,
        added: [entry('one')],
        removed: [],
        changed: [],
      });
      const changed = { path: 'a.txt', from: entry('one'), to: entry('two') };
      const nothing = { artifactId: id, added: [], removed: [], changed: [] };
      expect(await files.diff(id, 2)).toEqual({ ...nothing, from: 1, to: 2, changed: [changed] });
      expect(await files.diff(id, 'latest', '?from=latest')).toEqual({ ...nothing, from: 4, to: 4 });
      expect((await files.diff(id, 1, '?from=2')).changed).toEqual([
        { path: 'a.txt', from: entry('two'), to: entry('one') },
      ]);
      expect((await files.diff(id, 'latest', '?from=1')).from).toBe(1);
      for (const path of ['5/diff', '1/diff?from=5', '5/content', '5/tree', '5/zip', '5/files/a.txt', '1/files/b']) {
        refused(await files.tenant.request({ path: `/v1/artifacts/${id}/versions/${path}` }), 404, 'not_found');
      }
      expect(await files.told(session)).toEqual([1, 2, 3, 4].map((n) => `artifact.created a.txt ${n}`));
    });

    test('of a file are a tree of one file, alone or in an archive', async () => {
      const name = 'Öl & Wasser.txt';
      const { artifact, version } = await files.upload({ name }, text('both'), { 'content-type': 'text/plain' });
      const id = artifact.artifactId;
      const { size, sha256: digest, contentType } = version;
      expect(await there.tree(id)).toEqual({
        artifactId: id,
        version: 1,
        files: [{ path: name, size, sha256: digest, contentType }],
      });
      const base = `/v1/artifacts/${id}/versions/1`;
      const file = await there.tenant.request({ path: `${base}/files/${encodeURIComponent(name)}` });
      expect(file.text).toBe('both');
      const zip = await there.tenant.request({ path: `${base}/zip` });
      expect(zip.headers['content-type']).toBe('application/zip');
      expect(parse(String(zip.headers['content-disposition'])).parameters['filename']).toBe(`${name}.zip`);
      expect(await unzipped(zip.bytes)).toEqual(new Map([[name, 'both']]));
      const again = await files.tenant.request({ path: `${base}/zip` });
      expect(again.bytes.equals(zip.bytes), 'the same archive each time').toBe(true);
    });
  });

  describe('lists', () => {
    test('are oldest first, of a session or of all, in pages', async () => {
      const tenant = await newTenant(target());
      const own = new ArtifactClient(tenant);
      const [one, two] = [await newSession(tenant), await newSession(tenant)];
      const ids = [];
      for (let i = 0; i < 5; i += 1) {
        const query = { name: `n${i}`, ...(i === 4 ? {} : { sessionId: i % 2 === 0 ? one : two }) };
        ids.push((await own.upload(query, text('x'))).artifact.artifactId);
      }
      const all = shaped(await tenant.request({ path: '/v1/artifacts' }), 200, wire.artifactList);
      expect(all.artifacts.map(({ artifactId }) => artifactId)).toEqual(ids);
      expect(all.nextCursor).toBeNull();
      expect((await own.list(`?sessionId=${one}`)).map(({ name }) => name)).toEqual(['n0', 'n2']);
      expect(await own.list(`?sessionId=${fresh('absent')}`)).toEqual([]);
      const paged: string[] = [];
      for (let cursor: string | null = ''; cursor !== null;) {
        const path: string = `/v1/artifacts?limit=2${cursor === '' ? '' : `&cursor=${cursor}`}`;
        const page = shaped(await tenant.request({ path }), 200, wire.artifactList);
        paged.push(...page.artifacts.map(({ artifactId }) => artifactId));
        cursor = page.nextCursor;
      }
      expect(paged).toEqual(ids);
    });
  });

  describe('a deleted artifact', () => {
    test('is gone everywhere with its bytes, and its session says so', async () => {
      const session = await newSession(files.tenant);
      const { artifact } = await files.upload({ name: 'gone', sessionId: session }, text('bytes'));
      const twin = await files.upload({ name: 'twin', sessionId: session }, text('bytes'));
      const id = artifact.artifactId;
      const before = await files.use();
      const { path } = await files.link(id);
      expect((await send(target().nodes[1].url, { path })).text).toBe('bytes');
      const answer = shaped(await files.remove(id), 200, wire.artifactDeleted);
      expect(answer).toEqual({ artifactId: id, deleted: true });
      for (const client of [files, there]) {
        refused(await client.tenant.request({ path: `/v1/artifacts/${id}` }), 404, 'not_found');
        refused(await client.content(id), 404, 'not_found');
        refused(await client.sendVersion(id, text('more')), 404, 'not_found');
        refused(await client.remove(id), 404, 'not_found');
        expect((await client.list(`?sessionId=${session}`)).map(({ name }) => name)).toEqual(['twin']);
      }
      for (const { url } of target().nodes) refused(await send(url, { path }), 404, 'not_found');
      expect((await there.use()).usedBytes).toBe(before.usedBytes - 5);
      expect((await there.content(twin.artifact.artifactId)).text, 'the same bytes elsewhere stay').toBe('bytes');
      expect(await there.told(session)).toEqual([
        'artifact.created gone 1',
        'artifact.created twin 1',
        'artifact.deleted gone',
      ]);
    });

    test('goes with its session, and is none of a new session with the same id', async () => {
      const session = await newSession(files.tenant);
      const { usedBytes } = await files.use();
      const { artifact } = await files.upload({ name: 'old', sessionId: session }, text('bytes'));
      const path = `/v1/sessions/${encodeURIComponent(session)}`;
      expect((await files.tenant.request({ method: 'DELETE', path })).status).toBe(200);
      refused(await there.content(artifact.artifactId), 404, 'not_found');
      expect([await there.list(`?sessionId=${session}`), (await there.use()).usedBytes]).toEqual([[], usedBytes]);
      refused(await files.send({ name: 'late', sessionId: session }, text('x')), 404, 'not_found');
      await files.tenant.openSession(session);
      expect(await files.told(session)).toEqual([]);
      await there.upload({ name: 'new', sessionId: session }, text('x'));
      expect(await files.told(session)).toEqual(['artifact.created new 1']);
    });

    test('is deleted once, by however many', async () => {
      const session = await newSession(files.tenant);
      const { artifact } = await files.upload({ name: 'once', sessionId: session }, text('bytes'));
      const { usedBytes } = await files.use();
      const answers = await Promise.all(
        [files, there, files, there].map(async (client) => await client.remove(artifact.artifactId)),
      );
      expect(new Set(answers.map(({ status }) => status)).isSubsetOf(new Set([200, 404]))).toBe(true);
      expect((await files.use()).usedBytes).toBe(usedBytes - 5);
      expect(await files.told(session)).toEqual(['artifact.created once 1', 'artifact.deleted once']);
    });
  });
}
