/**
 * `npm run check`: everything that needs no server. One line a step; the output of failing steps only. Arguments name the
 * steps to run (`npm run lint`, `npm run typecheck`, `npm run test:unit`); without any, all of them run.
 */
import { runSteps, staticSteps, typesOfClientStep, unitStep } from './checks.mjs';

const startedMs = performance.now();
const steps = [unitStep(), ...staticSteps()];
const wanted = process.argv.slice(2);
const unknown = wanted.filter((name) => !steps.some((step) => step.name === name));
if (unknown.length > 0) {
  console.error(`unknown step: ${unknown.join(', ')}; the steps are ${steps.map(({ name }) => name).join(', ')}`);
  process.exit(1);
}
const results = [
  ...(await runSteps([typesOfClientStep()])),
  ...(await runSteps(wanted.length === 0 ? steps : steps.filter(({ name }) => wanted.includes(name)))),
];
const failed = results.filter((result) => !result.passed);
const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
console.log(
  failed.length === 0
    ? `check passed in ${seconds} s`
    : `check failed in ${seconds} s: ${failed.map((result) => result.name).join(', ')}`,
);
process.exitCode = failed.length === 0 ? 0 : 1;
