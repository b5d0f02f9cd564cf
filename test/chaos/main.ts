import { parseArgs } from 'node:util';
import { seededRandom } from '../support/random.ts';
import { reportOf } from './report.ts';
import { runChaos } from './run.ts';

/**
 * The long form: `npm run chaos -- --minutes 20 --seed 7`. Prints what it does, and at the end the table. Exit code 1
 * when anything is wrong.
 */
const { values } = parseArgs({
  options: { minutes: { type: 'string', default: '20' }, seed: { type: 'string' }, faults: { type: 'string' } },
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) throw new Error('--minutes needs a number above 0');
if (values.seed !== undefined) process.env['SEED'] = values.seed;
const random = seededRandom('chaos');
const begun = performance.now();
const report = (line: string): void => {
  process.stdout.write(`${((performance.now() - begun) / 1000).toFixed(1).padStart(7)} s  ${line}\n`);
};
const verdict = await runChaos({ random, forMs: minutes * 60_000, only: values.faults, report });
process.stdout.write(`\n${reportOf(verdict, { seed: random.seed, minutes })}\n`);
process.exitCode = verdict.problems.length === 0 ? 0 : 1;
