import fc from 'fast-check';
import { expect, test } from 'vitest';
import { happen, happenings, lives, manifests, newLife } from '../../../test/support/random-work.ts';
import { created } from '../../../test/support/sessions.ts';
import { evolveSessionView, viewOfTurn } from './views.ts';

test('a session shows the same from its rows as from its fold, whatever has happened', () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(manifests, happenings, (manifest, all) => {
      const life = newLife(manifest);
      const context = { at: '2026-01-01T00:00:00.000Z', shard: 0, position: 1, index: 0, id: 's' };
      let view = evolveSessionView(undefined, created(), context);
      let read = 0;
      for (const one of all) {
        happen(life, one);
        for (; read < life.events.length; read++) {
          const event = life.events[read];
          if (event !== undefined) view = evolveSessionView(view, event, context);
        }
        const shown = viewOfTurn(life.session.turn);
        expect(view).toMatchObject(shown);
        expect(view?.waits).toEqual(shown.waits);
        seen.add(shown.status);
      }
    }),
    { numRuns: 60, examples: lives },
  );
  expect([...seen].toSorted()).toEqual(['idle', 'paused', 'running', 'uncertain', 'waiting']);
});
