import type { Role } from '../roles.ts';

/** What one of the processes of a Host does. */
export interface PlannedProcess {
  /** From 1; names its node, its log lines and its figures. */
  readonly number: number;
  readonly roles: readonly Role[];
  /** Whether it takes requests on the shared port. Those that do have the same routes. */
  readonly isServing: boolean;
}

/** Each process follows the whole log, and all write to the same streams: more than this has to be asked for. */
const DEFAULT_MAX = 8;
export const PROCESSES_MAX = 16;
/** On two cores, which NATS and Postgres share, a second process made turns slower by a tenth (docs/operations/sizing.md). */
const CORES_LEAST = 4;

/** One core is left to NATS and Postgres. A projector alone is one process: others of the kind would stand by. */
export function processesByDefault(cores: number, roles: readonly Role[]): number {
  if (cores < CORES_LEAST || roles.every((role) => role === 'projector')) return 1;
  return Math.min(DEFAULT_MAX, cores - 1);
}

/**
 * One process feeds the read models, the others serve and run turns. Of two both serve: while one is restarted, the
 * other has to take the requests.
 */
export function planOf(count: number, roles: readonly Role[]): readonly PlannedProcess[] {
  const serving = roles.filter((role) => role !== 'projector');
  const projects = serving.length < roles.length && serving.length > 0;
  return Array.from({ length: count }, (_, index): PlannedProcess => {
    const number = index + 1;
    if (!projects || count === 1) return { number, roles, isServing: true };
    if (number < count) return { number, roles: serving, isServing: true };
    return count === 2 ? { number, roles, isServing: true } : { number, roles: ['projector'], isServing: false };
  });
}
