import { expect, test } from 'vitest';
import type { KnownArtifact } from '../artifact/state.ts';
import { evolveRecorded, missingArtifactEvents, noneRecorded } from './artifact-events.ts';
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
  const first = told(noneRecorded, artifact(1));
  expect(first.told).toEqual([1]);
  expect(told(first.recorded, artifact(1)).told).toEqual([]);
  // Two versions were recorded, and the teller of the second comes first.
  const third = told(first.recorded, artifact(3));
  expect(third.told).toEqual([2, 3]);
  expect(told(third.recorded, artifact(2)).told).toEqual([]);
});

test('of a deletion it hears last and once, and of nothing after it', () => {
  const all = told(noneRecorded, artifact(2, 'removed'));
  expect(all.told).toEqual([1, 2, 'artifact.deleted']);
  expect(told(all.recorded, artifact(2, 'removed')).told).toEqual([]);
  expect(told(all.recorded, artifact(2)).told).toEqual([]);
});

test('of an artifact that is not there it hears nothing', () => {
  expect(missingArtifactEvents(noneRecorded, { status: 'absent', abandoned: ['up_1'] })).toEqual([]);
});

test('an event copies a small part of what is recorded, and each artifact counts once, deleted or not', () => {
  const ids = Array.from({ length: 1_000 }, (_, i) => `af_${i.toString(32).padStart(3, '0')}`);
  const all = ids.reduce(
    (recorded, artifactId) => told(recorded, { ...artifact(1), artifactId }).recorded,
    noneRecorded,
  );
  expect(all.count).toBe(1_000);
  const next = told(all, { ...artifact(2, 'removed'), artifactId: 'af_000' }).recorded;
  expect(next.count).toBe(1_000);
  const changed = Object.entries(next.buckets).filter(([name, bucket]) => all.buckets[name] !== bucket);
  expect(changed).toHaveLength(1);
  expect(Object.keys(changed[0]?.[1] ?? {}).length).toBeLessThan(50);
});
