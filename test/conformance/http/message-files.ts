import { beforeAll, describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { ArtifactClient } from '../../support/artifacts.ts';
import { newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** Messages that name files: found when they are accepted, and given to the model. */
export function messageFileSuite(target: () => HttpTarget): void {
  let files: ArtifactClient;
  let session = '';

  beforeAll(async () => {
    files = new ArtifactClient(await newTenant(target()));
    session = await newSession(files.tenant);
  });

  const file = (artifactId: string, version?: number) => ({
    type: 'file',
    artifactId,
    ...(version === undefined ? {} : { version }),
  });
  const text = { 'content-type': 'text/plain' };

  /** What the fixture model answers: the text of a message, or of its files when it has none. */
  async function answered(parts: readonly unknown[]): Promise<unknown> {
    const answer = await files.tenant.command(session, { type: 'message', parts });
    const { turnId } = shaped(answer, 202, wire.commandAccepted);
    const { payload } = await files.tenant.turnEnd(session, turnId);
    return Reflect.get(Object(payload), 'output');
  }

  test('the model gets the bytes of the version that was named, or of the newest one', async () => {
    const { artifact } = await files.upload({ name: 'a.txt' }, Buffer.from('Grüße, one'), text);
    await files.tenant.request({
      method: 'POST',
      path: `/v1/artifacts/${artifact.artifactId}/versions`,
      body: Buffer.from('two'),
      headers: text,
    });
    expect(await answered([file(artifact.artifactId, 1)])).toBe('echo: Grüße, one');
    expect(await answered([file(artifact.artifactId)])).toBe('echo: two');
    expect(await answered([file(artifact.artifactId, 1), file(artifact.artifactId, 2)])).toBe('echo: Grüße, one\ntwo');
    expect(await answered([{ type: 'text', text: 'See the file' }, file(artifact.artifactId)])).toBe(
      'echo: See the file',
    );
    const image = await files.upload({ name: 'i.png' }, Buffer.alloc(3), { 'content-type': 'image/png' });
    expect(await answered([file(image.artifact.artifactId)])).toBe('echo: [i.png, image/png, 3 bytes]');
  });

  test('the history names the versions, not only the artifacts', async () => {
    const { artifact } = await files.upload({ name: 'b.txt' }, Buffer.from('b'), text);
    await answered([{ type: 'text', text: 'see' }, file(artifact.artifactId)]);
    const [message] = (await files.tenant.items(session)).filter(({ type }) => type === 'command.message').slice(-1);
    expect(message?.payload).toMatchObject({
      parts: [{ type: 'text', text: 'see' }, file(artifact.artifactId, 1)],
    });
  });

  describe('a file that is not there', () => {
    test('refuses the message, whether unknown, deleted, or of a version that there is not', async () => {
      const { artifact } = await files.upload({ name: 'c.txt' }, Buffer.from('c'), text);
      const gone = await files.upload({ name: 'd.txt' }, Buffer.from('d'), text);
      await files.remove(gone.artifact.artifactId);
      const before = await files.tenant.items(session);
      for (const part of [file('af_absent'), file(gone.artifact.artifactId), file(artifact.artifactId, 2)]) {
        const answer = await files.tenant.command(session, { type: 'message', parts: [part] });
        refused(answer, 404, 'not_found');
      }
      expect(await files.tenant.items(session)).toEqual(before);
    });

    test('or of somebody else', async () => {
      const anns = await newSession(files.tenant, { subject: 'ann' });
      const bens = await newSession(files.tenant, { subject: 'ben' });
      const { artifact } = await files.upload({ name: 'ann', sessionId: anns }, Buffer.from('x'), text);
      const ben = files.tenant.as('ben');
      const same = { requestId: 'same', idempotencyKey: 'same' };
      const foreign = await ben.command(bens, { type: 'message', parts: [file(artifact.artifactId)] }, same);
      const absent = await ben.command(bens, { type: 'message', parts: [file('af_absent')] }, same);
      expect(refused(foreign, 404, 'not_found').message).toBe(refused(absent, 404, 'not_found').message);
      const own = await files.upload({ name: 'ben', sessionId: bens }, Buffer.from('bens'), text);
      shaped(
        await ben.command(bens, { type: 'message', parts: [file(own.artifact.artifactId)] }),
        202,
        wire.commandAccepted,
      );
    });

    test('any more is no reason to answer a repeated message otherwise', async () => {
      const room = await newSession(files.tenant);
      const { artifact } = await files.upload({ name: 'e.txt' }, Buffer.from('e'), text);
      const ids = { requestId: 'r', idempotencyKey: 'k' };
      const command = { type: 'message', parts: [file(artifact.artifactId)] };
      const first = shaped(await files.tenant.command(room, command, ids), 202, wire.commandAccepted);
      await files.tenant.turnEnd(room, first.turnId);
      await files.remove(artifact.artifactId);
      expect(shaped(await files.tenant.command(room, command, ids), 202, wire.commandAccepted)).toEqual(first);
      const other = await files.tenant.command(room, { type: 'message', parts: [file('af_x')] }, ids);
      refused(other, 409, 'idempotency_conflict');
    });
  });
}
