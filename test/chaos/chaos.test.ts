import { expect, test } from 'vitest';
import { seededRandom } from '../support/random.ts';
import { reportOf } from './report.ts';
import { runChaos } from './run.ts';

const MINUTES = Number(process.env['CHAOS_MINUTES'] ?? 1);
/** Around the run itself: the start of an installation, healing and checking. */
const AROUND_MS = 900_000;

test(
  'whatever is killed, paused, cut or full: nothing lost, nothing doubled, nothing reordered, every turn ends',
  { timeout: MINUTES * 60_000 + AROUND_MS },
  async () => {
    const random = seededRandom('chaos');
    const verdict = await runChaos({
      random,
      forMs: MINUTES * 60_000,
      only: process.env['CHAOS_FAULTS'],
      report: (line) => process.stdout.write(`${line}\n`),
    });
    process.stdout.write(`${reportOf(verdict, { seed: random.seed, minutes: MINUTES })}\n`);
    expect(verdict.problems).toEqual([]);
    expect(verdict).toMatchObject({ lost: 0, doubled: 0, reordered: 0 });
    for (const figure of ['commands accepted', 'calls of MCP tools', 'refreshes of OAuth tokens']) {
      expect(verdict.figures[figure], figure).toBeGreaterThan(0);
    }
  },
);
