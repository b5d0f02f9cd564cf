import { expect, test } from 'vitest';
import { Draft } from '../kernel/decision.ts';
import { decideAbandon, decideRemove, decideStore, decideStoreVersion } from './decide.ts';
import type { StoredVersion } from './decide.ts';
import type { ArtifactEvent } from './events.ts';
import { evolveArtifact, freedBytesOf, initialArtifact } from './state.ts';
import type { ArtifactState } from './state.ts';

const AT = '2026-01-01T00:00:00.000Z';

const version = (uploadId: string, size = 5): StoredVersion => ({
  uploadId,
  size,
  sha256: 'a'.repeat(64),
  contentType: 'text/plain',
  source: 'upload',
  object: uploadId,
  objects: [uploadId],
  storedBytes: size,
  turnId: null,
});
const first = (uploadId: string, size?: number) => ({
  artifactId: 'af_1',
  kind: 'file' as const,
  name: 'n',
  owner: null,
  labels: {},
  version: version(uploadId, size),
});

function after(...events: ArtifactEvent[]): ArtifactState {
  const draft = new Draft<ArtifactState, ArtifactEvent>(initialArtifact, evolveArtifact, AT);
  for (const event of events) draft.add(event);
  return draft.state;
}

const stored: ArtifactEvent = {
  type: 'artifact.stored',
  data: { ...first('up_1'), version: { ...version('up_1'), version: 1 } },
};
const second: ArtifactEvent = {
  type: 'artifact.version_stored',
  data: { version: { ...version('up_2', 7), version: 2 } },
};
const removed: ArtifactEvent = { type: 'artifact.removed', data: { removalId: 'rm_1' } };
const abandoned: ArtifactEvent = { type: 'artifact.upload_abandoned', data: { uploadId: 'up_1' } };

test('the first version makes the artifact, the next ones are counted up', () => {
  expect(decideStore(after(), first('up_1'))).toMatchObject({
    kind: 'accepted',
    events: [stored],
    reply: { version: 1 },
  });
  expect(decideStoreVersion(after(stored), version('up_2', 7))).toMatchObject({
    events: [second],
    reply: { version: 2 },
  });
});

test('the same upload records its version once', () => {
  expect(decideStore(after(stored), first('up_1'))).toEqual({ kind: 'unchanged', reply: { version: 1 } });
  expect(decideStoreVersion(after(stored, second), version('up_2'))).toEqual({
    kind: 'unchanged',
    reply: { version: 2 },
  });
});

test('an upload that was given up records nothing any more, one that has recorded is not given up', () => {
  expect(decideStore(after(abandoned), first('up_1'))).toMatchObject({ kind: 'rejected', code: 'conflict' });
  expect(
    decideStoreVersion(
      after(stored, { type: 'artifact.upload_abandoned', data: { uploadId: 'up_9' } }),
      version('up_9'),
    ),
  ).toMatchObject({ kind: 'rejected' });
  expect(decideAbandon(after(), 'up_1')).toMatchObject({ events: [abandoned], reply: { stored: false } });
  expect(decideAbandon(after(abandoned), 'up_1')).toEqual({ kind: 'unchanged', reply: { stored: false } });
  expect(decideAbandon(after(stored), 'up_1')).toEqual({ kind: 'unchanged', reply: { stored: true } });
});

test('what is not there or removed takes no version', () => {
  for (const state of [after(), after(stored, removed)]) {
    expect(decideStoreVersion(state, version('up_3'))).toMatchObject({ kind: 'rejected', code: 'not_found' });
  }
  expect(decideStore(after(stored, removed), first('up_3'))).toMatchObject({ kind: 'rejected', code: 'not_found' });
});

test('of two removals the first one gives the bytes back', () => {
  expect(decideRemove(after(), 'rm_1')).toMatchObject({ kind: 'rejected', code: 'not_found' });
  expect(decideRemove(after(stored, second), 'rm_1')).toMatchObject({ events: [removed] });
  expect(decideRemove(after(stored, removed), 'rm_2')).toEqual({ kind: 'unchanged', reply: null });
  const state = after(stored, second, removed, { type: 'artifact.removed', data: { removalId: 'rm_2' } });
  expect([freedBytesOf(state, 'rm_1'), freedBytesOf(state, 'rm_2'), freedBytesOf(after(stored), 'rm_1')]).toEqual([
    12, 0, 0,
  ]);
});
