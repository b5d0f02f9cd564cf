import fc from 'fast-check';
import { expect, test } from 'vitest';
import { happen, happenings, manifests, newLife } from '../../../test/support/random-work.ts';
import { isOfTurn } from './events.ts';
import { dueMs, evolveSummary } from './summary.ts';
import type { TurnSummary } from './summary.ts';

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
