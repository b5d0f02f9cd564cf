import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ArtifactDeps } from '#src/commands/artifact/deps.ts';
import { ModelFiles } from '#src/commands/artifact/model-file.ts';
import { removeArtifact } from '#src/commands/artifact/remove.ts';
import { uploadArtifact } from '#src/commands/artifact/upload.ts';
import { systemClock } from '#src/lib/clock.ts';
import { MemoryStreams } from '#src/streams/memory/streams.ts';
import { chunks } from '../conformance/objects.ts';
import { artifactDepsOn } from '../support/artifact-deps.ts';
import { newRef } from '../support/commits.ts';
import { newBucket, openMemoryLog } from '../support/memory-log.ts';
import { overriding } from '../support/overriding.ts';

const META = { actor: 'test', causation: 'test' };

async function stored(deps: ArtifactDeps, tenant: string, text: string): Promise<string> {
  const uploaded = await uploadArtifact(deps, {
    ...{ ...META, tenant, body: chunks(Buffer.from(text)), declaredBytes: text.length },
    target: { kind: 'new', name: 'a.txt', owner: null, labels: {} },
    contentTypeOf: () => 'text/plain',
    signal: new AbortController().signal,
  });
  if (uploaded.kind === 'rejected') throw new Error(uploaded.message);
  return uploaded.artifact.artifactId;
}

test('the bytes of a file are read once for all steps, and not at all once it is deleted', async () => {
  await using directory = await mkdtempDisposable(join(tmpdir(), 'agent-host-model-files-'));
  using log = await openMemoryLog(new MemoryStreams(1, systemClock), newBucket());
  const parts = await artifactDepsOn(log.store, directory.path);
  let reads = 0;
  const open: ArtifactDeps['objects']['open'] = async (...given) => {
    reads += 1;
    return await parts.objects.open(...given);
  };
  const deps = { ...parts, objects: overriding(parts.objects, { open }) };
  const files = new ModelFiles(deps);
  const [{ tenant }, other] = [newRef(), newRef()];
  const artifactId = await stored(deps, tenant, 'words');
  const ref = { artifactId, version: 1 };
  const text = async (): Promise<string> =>
    Buffer.from((await (await files.get(tenant, ref))?.read?.()) ?? '').toString();

  expect([await text(), await text()]).toEqual(['words', 'words']);
  expect(reads).toBe(1);
  files.forget(other.tenant);
  await text();
  expect(reads).toBe(1);
  files.forget(tenant);
  await text();
  expect(reads).toBe(2);
  expect(await files.get(other.tenant, ref)).toBeNull();

  await removeArtifact(deps, { ...META, tenant, artifactId, outOfReach: () => null });
  expect(await files.get(tenant, ref)).toBeNull();
});
