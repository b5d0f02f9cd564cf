import { availableParallelism } from 'node:os';
import { defineConfig } from 'vitest/config';

const SECOND = 1_000;
/** As long as `until` waits. */
const POLL_SECONDS = 60;

/**
 * Five projects, one after the other, so that tests which measure waiting never share the machine with a later kind.
 * Nothing is retried: a test that fails once has found something. Times are those of a small machine that others use too,
 * on which each process may stand still for seconds: who breaks a promise is late by more, and only then waited for.
 */
const project = (name: string, order: number, include: string[], seconds: number) => ({
  name,
  include,
  environment: 'node' as const,
  testTimeout: seconds * SECOND,
  hookTimeout: seconds * SECOND,
  retry: 0,
  expect: { poll: { timeout: POLL_SECONDS * SECOND } },
  sequence: { groupOrder: order },
});

export default defineConfig({
  test: {
    projects: [
      {
        test: {
          ...project('unit', 0, ['src/**/*.test.ts', 'test/tidy/**/*.test.ts'], 90),
          // What is pure shares nothing: the modules are loaded once, in half the time.
          isolate: false,
          // Vitest leaves a core to others, and of two that was half: 52 s became 32.
          maxWorkers: Math.max(2, availableParallelism() - 1),
        },
      },
      {
        test: {
          ...project('integration', 1, ['test/integration/**/*.test.ts'], 180),
          maxWorkers: 3,
          globalSetup: ['test/support/global-setup.ts'],
        },
      },
      {
        test: {
          ...project('e2e', 2, ['test/e2e/**/*.test.ts'], 360),
          maxWorkers: 3,
          globalSetup: ['test/support/global-setup.ts'],
        },
      },
      { test: { ...project('upgrade', 3, ['test/upgrade/**/*.test.ts'], 300), maxWorkers: 1 } },
      { test: { ...project('chaos', 4, ['test/chaos/**/*.test.ts'], 300), maxWorkers: 1 } },
    ],
  },
});
