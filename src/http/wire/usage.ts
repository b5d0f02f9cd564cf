import { z } from 'zod';
import { text } from '../../domain/kernel/schemas.ts';
import { usageSchema } from '../../domain/turn/usage.ts';
import { count, nullableCursor, timestamp } from './parts.ts';

/** Shapes of the usage routes. */

/** How far apart `from` and `to` may be: a year, and what a bill of it may need on both sides. */
export const USAGE_DAYS_MAX = 400;

const total = {
  /** As in a model call. `duplicate`: some call in it is. */
  usage: usageSchema,
  calls: z.int(),
  duplicates: z.int(),
  /** Of tools that ran in sandboxes: from the beginning of each to its end, and what its processes took. */
  sandboxCalls: z.int(),
  sandboxSeconds: z.number(),
  sandboxCpuSeconds: z.number(),
  sandboxBytesWritten: z.int(),
};

export const sessionUsageQuery = z.strictObject({ turnId: text(1, 200).optional() });
export const sessionUsage = z.object({ ...total, asOf: timestamp }).meta({ id: 'SessionUsage' });

/** With an offset or Z; four digits for the year, also after conversion to UTC. */
const instant = z.iso
  .datetime({ offset: true })
  .transform((value) => new Date(value).toISOString())
  .refine((value) => value.length === 24, 'must be a time in the years 0 to 9999')
  .meta({ type: 'string', format: 'date-time' });

export const tenantUsageQuery = z.strictObject({
  from: instant.optional(),
  to: instant.optional(),
  groupBy: z.enum(['agent', 'model', 'session', 'day']).default('day'),
  limit: count(1, 1_000, 100),
  cursor: z.string().optional(),
});
const group = z.object({ key: z.string(), ...total }).meta({ id: 'UsageGroup' });
export const tenantUsage = z.object({
  from: timestamp,
  to: timestamp,
  groups: z.array(group),
  total: z.object(total),
  nextCursor: nullableCursor,
  asOf: timestamp,
});
