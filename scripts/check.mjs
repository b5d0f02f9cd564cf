/** `npm run check`: everything that needs no server. One line a step; the output of failing steps only. */
import { runSteps, staticSteps, unitStep } from './checks.mjs';

const startedMs = performance.now();
const results = await runSteps([unitStep(), ...staticSteps()]);
const failed = results.filter((result) => !result.passed);
const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
console.log(
  failed.length === 0
    ? `check passed in ${seconds} s`
    : `check failed in ${seconds} s: ${failed.map((result) => result.name).join(', ')}`,
);
process.exitCode = failed.length === 0 ? 0 : 1;
