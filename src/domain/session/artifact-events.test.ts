import { expect, test } from 'vitest';
import type { KnownArtifact } from '../artifact/state.ts';
import { evolveRecorded, missingArtifactEvents } from './artifact-events.ts';
import type { RecordedArtifacts } from './artifact-events.ts';

const versionOf = (version: number): KnownArtifact['versions'][number] => ({
  version,
  uploadId: `up_${version}`,
  size: version,
  sha256: 'h',
  contentType: 'text/plain',
  source: 'upload',
  object: 'o',
  objects: ['o'],
  storedBytes: version,
  turnId: null,
  createdAt: 'now',
});

const artifact = (versions: number, status: KnownArtifact['status'] = 'stored'): KnownArtifact => ({
  status,
  artifactId: 'af_1',
  kind: 'file',
  name: 'n',
  owner: { sessionId: 's', sessionPosition: 7, subject: null, agentId: 'a' },
  labels: {},
  versions: Array.from({ length: versions }, (_, i) => versionOf(i + 1)),
  abandoned: [],
  removalId: status === 'removed' ? 'rm_1' : null,
  createdAt: 'now',
  updatedAt: 'now',
});

function told(recorded: RecordedArtifacts, of: KnownArtifact): { recorded: RecordedArtifacts; told: unknown[] } {
  const events = missingArtifactEvents(recorded, of);
  const next = events.reduce(evolveRecorded, recorded);
  return { recorded: next, told: events.map(({ type, data }) => ('version' in data ? data.version : type)) };
}

test('a session hears of each version once and in order, however late it is told', () => {
  const first = told({}, artifact(1));
  expect(first.told).toEqual([1]);
  expect(told(first.recorded, artifact(1)).told).toEqual([]);
  // Two versions were recorded, and the teller of the second comes first.
  const third = told(first.recorded, artifact(3));
  expect(third.told).toEqual([2, 3]);
  expect(told(third.recorded, artifact(2)).told).toEqual([]);
});

test('of a deletion it hears last and once, and of nothing after it', () => {
  const all = told({}, artifact(2, 'removed'));
  expect(all.told).toEqual([1, 2, 'artifact.deleted']);
  expect(told(all.recorded, artifact(2, 'removed')).told).toEqual([]);
  expect(told(all.recorded, artifact(2)).told).toEqual([]);
});

test('of an artifact that is not there it hears nothing', () => {
  expect(missingArtifactEvents({}, { status: 'absent', abandoned: ['up_1'] })).toEqual([]);
});
