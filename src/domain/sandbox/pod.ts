import { toMs, toTimestamp } from '../kernel/time.ts';
import type { z } from 'zod';
import type { podSpec } from './spec.ts';

export type PodSpec = z.infer<typeof podSpec>;

/** What a pod may use when its spec does not say. */
export const POD_DEFAULTS = { cpus: 1, memoryBytes: 1_073_741_824, storageBytes: 1_073_741_824, idleMs: 900_000 };

/** What one pod of this Host may ask for at most. */
export type PodMaxima = Pick<PodBounds, 'cpus' | 'memoryBytes' | 'storageBytes'>;

/** What a pod may use, and when it ends. */
export interface PodBounds {
  readonly cpus: number;
  /** Of all its processes together, with what they keep in /tmp. */
  readonly memoryBytes: number;
  /** Of its volume. */
  readonly storageBytes: number;
  /** Suspended after this long without a call. */
  readonly idleMs: number;
  /** From its creation; null: until it is deleted. */
  readonly ttlMs: number | null;
}

/** The bounds that a spec states, with the defaults for the rest. */
export function podBounds(spec: PodSpec): PodBounds {
  const { cpus, memory, storage, idle, ttl } = spec;
  return {
    cpus: cpus ?? POD_DEFAULTS.cpus,
    memoryBytes: memory === undefined ? POD_DEFAULTS.memoryBytes : bytesOfQuantity(memory),
    storageBytes: storage === undefined ? POD_DEFAULTS.storageBytes : bytesOfQuantity(storage),
    idleMs: idle === undefined ? POD_DEFAULTS.idleMs : msOfDuration(idle),
    ttlMs: ttl === undefined ? null : msOfDuration(ttl),
  };
}

/** When a pod expires; null: never. */
export function expiryOf({ ttl }: PodSpec, createdAt: string): string | null {
  return ttl === undefined ? null : toTimestamp(toMs(createdAt) + msOfDuration(ttl));
}

const UNIT_BYTES: Readonly<Record<string, number>> = { Ki: 1_024, Mi: 1_048_576, Gi: 1_073_741_824 };
const UNIT_MS: Readonly<Record<string, number>> = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Bytes of a quantity as specs state it: `512Mi`. */
export function bytesOfQuantity(text: string): number {
  return Number.parseInt(text, 10) * (UNIT_BYTES[text.slice(-2)] ?? 1);
}

function msOfDuration(text: string): number {
  return Number.parseInt(text, 10) * (UNIT_MS[text.slice(-1)] ?? 1_000);
}
