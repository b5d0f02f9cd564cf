import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { removeOrphans } from '#src/commands/artifact/remove-orphan.ts';
import { artifactRef } from '#src/commands/artifact/deps.ts';
import { uploadArtifact } from '#src/commands/artifact/upload.ts';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { artifactDepsOn } from '../support/artifact-deps.ts';
import { newRef } from '../support/commits.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';
import { chunks } from '../conformance/objects.ts';

const servers = useServers();
const FILES = 20;
const AT_A_TIME = 8;

test('the artifacts of a deleted session are removed a few at a time, and never more', async () => {
  await using directory = await mkdtempDisposable(join(tmpdir(), 'agent-host-orphans-'));
  const parts = await artifactDepsOn(servers.log.store, directory.path);
  const { tenant } = newRef();
  const owner = { sessionId: 'gone', sessionPosition: 1, subject: null, agentId: 'agent' };
  const ids: string[] = [];
  for (let n = 0; n < FILES; n += 1) {
    const { signal } = new AbortController();
    const stored = await uploadArtifact(parts, {
      ...{ tenant, body: chunks(Buffer.from('x')), declaredBytes: 1, signal, actor: 'test', causation: 'test' },
      target: { kind: 'new', name: `n${n}`, owner, labels: {} },
      contentTypeOf: () => 'text/plain',
    });
    if (stored.kind === 'rejected') throw new Error(stored.message);
    ids.push(stored.artifact.artifactId);
  }

  let [underWay, most] = [0, 0];
  const gate = Promise.withResolvers<undefined>();
  const offBegun = onFaultPoint('artifact.removal-begun', async () => {
    underWay += 1;
    most = Math.max(most, underWay);
    await gate.promise;
  });
  const offDone = onFaultPoint('artifact.removed', () => {
    underWay -= 1;
  });
  try {
    const removing = removeOrphans(parts, tenant, ids);
    await until('several removals have begun, and none has ended', () => underWay === AT_A_TIME);
    gate.resolve(undefined);
    const removed = await removing;
    expect(removed.map(({ ref }) => ref.id).toSorted()).toEqual(ids.toSorted());
  } finally {
    gate.resolve(undefined);
    offBegun();
    offDone();
  }
  expect(most).toBe(AT_A_TIME);
  for (const id of ids) {
    expect((await parts.artifacts.refresh(artifactRef(tenant, id))).state.status).toBe('removed');
  }
});
