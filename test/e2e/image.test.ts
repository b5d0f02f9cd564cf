import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { tmpdir } from 'node:os';
import { expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import { PROGRAM } from '../support/program.ts';

const ROOT = join(import.meta.dirname, '../..');

/** The files of the image, as deploy/Dockerfile puts them together, in a directory of their own. */
async function imageFiles(): Promise<AsyncDisposable & { program: string }> {
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-image-'));
  const dockerfile = await readFile(join(ROOT, 'deploy/Dockerfile'), 'utf8');
  const ofImage = dockerfile.slice(dockerfile.lastIndexOf('\nFROM '));
  for (const [, names = '', to = ''] of ofImage.matchAll(/^COPY (?!--from)(.*) (\S+)$/gm)) {
    for (const name of names.split(' ')) {
      await cp(join(ROOT, name), join(directory, to === './' ? name : to), { recursive: true });
    }
  }
  const [, dist = ''] = /^COPY --from=build \/app\/(\S+) \1$/m.exec(ofImage) ?? [];
  await cp(dirname(PROGRAM), join(directory, dist), { recursive: true });
  const [, entry = ''] = /^ENTRYPOINT \["node", "\/app\/(.*)"\]$/m.exec(ofImage) ?? [];
  return {
    program: join(directory, entry),
    [Symbol.asyncDispose]: async () => await rm(directory, { recursive: true, force: true }),
  };
}

test('what the image holds is enough for every role: no package is missing', async () => {
  await using image = await imageFiles();
  await using servers = await startHost();
  await using host = await startHost({ join: servers, program: image.program });
  // Only the node of the image runs from here on; the servers go on under a Host that stands still.
  servers.pause();
  try {
    const tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent();
    await tenant.openSession('of-the-image');
    const { turnId } = await tenant.play('of-the-image', [{ text: 'here' }]);
    expect(await tenant.turnEnd('of-the-image', turnId)).toMatchObject({
      type: 'turn.completed',
      payload: { output: 'here' },
    });
    expect(await fetch(`${host.url}/openapi.json`).then((answer) => answer.status)).toBe(200);
  } finally {
    servers.resume();
  }
});
