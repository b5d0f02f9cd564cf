import { describe, expect, test } from 'vitest';
import { seededRandom } from '../../test/support/random.ts';
import { Run } from './continuity.ts';
import type { Gap } from './continuity.ts';

const random = seededRandom('continuity');
const ROUNDS = 2_000;

/** What a listener of one stream has been told, in order. */
class Heard {
  readonly commits: number[] = [];
  readonly gaps: Gap[] = [];
  /** Everything up to here was a commit or part of a gap. */
  upTo = 0;

  commit(position: number): void {
    expect(position).toBe(this.upTo + 1);
    this.commits.push(position);
    this.upTo = position;
  }

  gap(gap: Gap | null): void {
    if (gap === null) return;
    expect(gap.after).toBe(this.upTo);
    expect(gap.upTo).toBeGreaterThan(gap.after);
    this.gaps.push(gap);
    this.upTo = gap.upTo;
  }
}

/** What is delivered of positions 1 … `stored`: some are lost, doubled, or overtaken by later ones. */
function deliveries(stored: number, faults: { lost: number; doubled: number; lateBy: number }): number[] {
  const sent: { readonly position: number; readonly at: number }[] = [];
  for (let position = 1; position <= stored; position++) {
    if (random.int(1, 100) <= faults.lost) continue;
    sent.push({ position, at: position + random.int(0, faults.lateBy) });
    if (random.int(1, 100) <= faults.doubled) sent.push({ position, at: position + random.int(0, 2 * faults.lateBy) });
  }
  return sent.toSorted((a, b) => a.at - b.at).map(({ position }) => position);
}

describe('of one stream', () => {
  test('whatever is lost, doubled or overtaken, each position is one commit or part of one gap, in order', () => {
    for (let round = 0; round < ROUNDS; round++) {
      const stored = random.int(1, 60);
      const lost = [0, 10, 60, 100][random.int(0, 3)] ?? 0;
      const faults = { lost, doubled: random.int(0, 50), lateBy: random.int(0, 6) };
      const [run, heard] = [new Run(0), new Heard()];
      let newest = 0;
      for (const position of deliveries(stored, faults)) {
        newest = Math.max(newest, position);
        // A poll of the log may happen at any time and know more than has arrived.
        if (random.int(0, 9) === 0) heard.gap(run.reaches(random.int(0, Math.min(stored, newest + 3))));
        const { isNew, gap } = run.arrived(position);
        heard.gap(gap);
        if (isNew) heard.commit(position);
      }
      heard.gap(run.reaches(stored));
      expect(heard.upTo).toBe(stored);
      expect(run.last).toBe(stored);
    }
  });

  test('where nothing is lost or overtaken there is no gap, however often the log is asked', () => {
    for (let round = 0; round < ROUNDS / 10; round++) {
      const stored = random.int(1, 60);
      const [run, heard] = [new Run(3), new Heard()];
      for (const position of deliveries(stored, { lost: 0, doubled: 30, lateBy: 0 })) {
        const { isNew, gap } = run.arrived(position);
        expect(gap).toBeNull();
        if (isNew) heard.commit(position);
        expect(run.reaches(random.int(0, position))).toBeNull();
      }
      expect(heard.commits).toEqual(Array.from({ length: stored }, (_, n) => n + 1));
    }
  });

  test('it begins anywhere, and a stream whose newest were purged takes nothing back', () => {
    const run = new Run(2);
    expect(run.last).toBeNull();
    expect(run.reaches(41)).toEqual({ shard: 2, after: 0, upTo: 41 });
    expect(run.arrived(42)).toEqual({ isNew: true, gap: null });
    expect(run.reaches(17)).toBeNull();
    expect(run.arrived(42)).toEqual({ isNew: false, gap: null });
    expect(run.arrived(45)).toEqual({ isNew: true, gap: { shard: 2, after: 42, upTo: 44 } });
    expect(run.arrived(44)).toEqual({ isNew: false, gap: null });
    expect(run.last).toBe(45);
  });
});
