import fc from 'fast-check';
import { expect, test } from 'vitest';
import { happen, happenings, lives, manifests, newLife } from '../../../test/support/random-work.ts';
import { isOfTurn } from './events.ts';
import { attendanceAfter, isAttended } from './attendance.ts';
import { dueMs, evolveSummary, evolveWaits, statusBy, statusOf, waitsOf } from './summary.ts';
import { signInsOf } from './sign-ins.ts';
import type { TurnSummary, Wait } from './summary.ts';

test('a watch knows of a turn what the turn knows of itself, whatever has happened', () => {
  fc.assert(
    fc.property(manifests, happenings, (manifest, all) => {
      const life = newLife(manifest);
      let watch: TurnSummary | null = null;
      let read = 0;
      for (const one of all) {
        happen(life, one);
        for (; read < life.events.length; read++) {
          const event = life.events[read];
          if (event !== undefined && isOfTurn(event)) watch = evolveSummary(watch, event);
        }
        const { turn } = life.session;
        expect(watch?.turnId ?? null).toBe(turn?.turnId ?? null);
        if (turn === null || watch === null) continue;
        const claims = Object.values(turn.work.actions).flatMap(({ claim }) => claim ?? []);
        expect(watch).toMatchObject({
          workerId: turn.claim?.workerId ?? null,
          wanted: turn.wanted,
          restsUntil: turn.restsUntil,
          deadlineAt: turn.deadlineAt,
          paused: turn.pausedAt !== null,
        });
        const times = claims.flatMap(({ leaseExpiresAt, timeoutAt }) => [leaseExpiresAt, timeoutAt ?? leaseExpiresAt]);
        if (turn.pausedAt === null) times.push(turn.deadlineAt);
        if (turn.restsUntil !== null) times.push(turn.restsUntil);
        expect(dueMs(watch)).toBe(Math.min(Number.POSITIVE_INFINITY, ...times.map((time) => Date.parse(time))));
      }
    }),
    { numRuns: 100 },
  );
});

test('and which sign-ins it waits for', () => {
  let awaited = 0;
  fc.assert(
    fc.property(manifests, happenings, (manifest, all) => {
      const life = newLife(manifest);
      for (const one of all) {
        happen(life, one);
        const signIns = life.session.turn === null ? [] : signInsOf(life.session.turn);
        const watch = life.events.filter(isOfTurn).reduce<TurnSummary | null>(evolveSummary, null);
        expect(watch?.signIns ?? []).toEqual(signIns);
        awaited += signIns.length;
      }
    }),
    { numRuns: 50, examples: lives },
  );
  expect(awaited).toBeGreaterThan(0);
});

test('readers that fold the log see the waits and the status of the turn, whatever has happened', () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(manifests, happenings, (manifest, all) => {
      const life = newLife(manifest);
      let waits: readonly Wait[] = [];
      let attended = false;
      let read = 0;
      for (const one of all) {
        happen(life, one);
        for (; read < life.events.length; read++) {
          const event = life.events[read];
          if (event === undefined || !isOfTurn(event)) continue;
          const attendance = attendanceAfter(event);
          attended = attendance === null ? attended : isAttended(attendance);
          waits = event.type === 'turn.started' ? [] : evolveWaits(waits, event);
        }
        const { turn } = life.session;
        if (turn === null) continue;
        seen.add(statusOf(turn));
        expect(waits).toEqual(waitsOf(turn));
        expect(statusBy(waits, attended)).toBe(statusOf(turn));
      }
    }),
    { numRuns: 100, examples: lives },
  );
  expect([...seen].toSorted()).toEqual(['paused', 'running', 'uncertain', 'waiting']);
});
