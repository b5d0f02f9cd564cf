import { startInMemory } from './host.ts';
import type { MemoryHost, MemoryHostOptions } from './types.ts';

export type {
  FailurePoint,
  HostClock,
  MemoryClientOptions,
  MemoryHost,
  MemoryHostOptions,
  MemoryTenant,
  ModelAnswer,
  ModelScript,
  ModelStep,
  UntilOptions,
} from './types.ts';

/**
 * Starts a Host in this process, for tests and for embedding: the same commands, turns, read models and HTTP as the
 * durable one, and nothing survives its closing. Several can run in one process.
 */
export const createMemoryHost: (options?: MemoryHostOptions) => Promise<MemoryHost> = async (options = {}) =>
  await startInMemory(options);
