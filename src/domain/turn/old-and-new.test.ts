import fc from 'fast-check';
import { expect, test } from 'vitest';
import * as before from '../../../test/support/before/random-work.ts';
import { statusOf as statusBefore } from '../../../test/support/before/domain/turn/rest.ts';
import { evolveWatch } from '../../../test/support/before/domain/turn/watch.ts';
import {
  hasJobs as hadJobs,
  isReady as wasReady,
  restUntil as restedUntil,
  retryDueMs as retryWasDueMs,
} from '../../../test/support/before/domain/turn/rest.ts';
import { happen, happenings, lives, manifests, newLife } from '../../../test/support/random-work.ts';
import { START_MS } from '../../../test/support/given.ts';
import type { SessionEvent } from '../session/events.ts';
import { isOfTurn } from './events.ts';
import { hasJobs, isReady, restUntil, retryDueMs } from './jobs.ts';
import { evolveSummary, evolveWaits, statusBy, statusOf, waitsOf } from './summary.ts';
import type { TurnSummary, Wait } from './summary.ts';

test('a turn records what it recorded before it had a cursor, whatever happens', () => {
  fc.assert(
    fc.property(manifests, happenings, fc.boolean(), (given, all, isJson) => {
      const manifest = isJson ? { ...given, outputSchema: { type: 'object' } } : given;
      const life = newLife(manifest);
      const old = before.newLife(manifest);
      let summary: TurnSummary | null = null;
      let watch: ReturnType<typeof evolveWatch> = null;
      let waits: readonly Wait[] = [];
      let read = 0;
      for (const one of all) {
        happen(life, one);
        before.happen(old, one);
        expect(life.events.slice(read)).toEqual(old.events.slice(read));
        expect(life.session).toEqual(old.session);
        for (; read < life.events.length; read++) {
          const event = life.events[read] as SessionEvent;
          watch = evolveWatch(watch, event as never);
          if (!isOfTurn(event)) continue;
          summary = evolveSummary(summary, event);
          waits = event.type === 'turn.started' || summary === null ? [] : evolveWaits(waits, event);
        }
        expect(summary).toEqual(watch);
        const { turn } = life.session;
        if (turn === null || old.session.turn === null) continue;
        const ms = START_MS + life.ms;
        expect([statusOf(turn), hasJobs(turn), isReady(turn, ms), restUntil(turn, ms), retryDueMs(turn)]).toEqual([
          statusBefore(old.turn),
          hadJobs(old.turn),
          wasReady(old.turn, ms),
          restedUntil(old.turn, ms),
          retryWasDueMs(old.turn),
        ]);
        expect(statusBy(waits, turn.claim !== null || turn.wanted || turn.restsUntil !== null)).toBe(statusOf(turn));
        expect(waits).toEqual(waitsOf(turn));
      }
      expect(life.spans).toEqual(old.spans);
    }),
    { numRuns: Number(process.env['OLD_NEW_RUNS'] ?? 150), examples: lives.map(([given, all]) => [given, all, false]) },
  );
}, 600_000);
