import fc from 'fast-check';
import { expect, test } from 'vitest';
import { happen, happenings, lives, manifests, newLife } from '../../../test/support/random-work.ts';
import {
  checkCalls,
  checkEnds,
  checkMcpCalls,
  checkRest,
  checkRetries,
  checkSpans,
  checkWork,
} from '../../../test/support/turn-laws.ts';

test('whatever happens, each turn has one end, each call and action one fate and one span, and nothing is forgotten', () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(manifests, happenings, (manifest, all) => {
      const life = newLife(manifest);
      for (const one of all) {
        happen(life, one);
        checkRest(life);
      }
      for (const { type } of life.events) seen.add(type);
      checkEnds(life);
      checkWork(life);
      checkCalls(life);
      checkMcpCalls(life);
      checkSpans(life);
      checkRetries(life);
    }),
    { numRuns: 150, examples: lives },
  );
  const often = [
    'action.uncertain',
    'command.retry',
    'conversation.compacted',
    'delegation.completed',
    'interaction.opened',
    'mcp.held',
    'mcp.repeated',
    'mcp.state',
    'turn.extended',
  ];
  expect(often.filter((type) => !seen.has(type))).toEqual([]);
});
