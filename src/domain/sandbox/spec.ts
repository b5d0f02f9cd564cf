import { z } from 'zod';
import { text } from '../kernel/schemas.ts';

export const SANDBOX_KINDS = ['virtual', 'pod'] as const;
export type SandboxKind = (typeof SANDBOX_KINDS)[number];

/** `host`, `host:port` or `*.domain`: where commands may send requests. */
const allowedHost = z
  .string()
  .max(260)
  .regex(
    /^(\*\.)?[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*(:[1-9][0-9]{0,4})?$/,
    "must be a host, 'host:port' or '*.domain'",
  );

const network = z.strictObject({ allow: z.array(allowedHost).max(64) });
/** The first content of the workspace. */
const source = z.strictObject({ artifactId: text(1, 200), version: z.int().min(1).max(999_999_999).optional() });
const either = { source: source.optional(), network: network.optional() };

export const virtualSpec = z.strictObject({
  ...either,
  /** Whether `python3` and `sqlite3` exist. */
  python: z.boolean().optional(),
});

const duration = z.string().regex(/^[1-9][0-9]{0,5}(s|m|h|d)$/, "must be a number and 's', 'm', 'h' or 'd'");
const quantity = z.string().regex(/^[1-9][0-9]{0,8}(Ki|Mi|Gi)?$/, "must be a number of bytes, with 'Ki', 'Mi' or 'Gi'");

export const podSpec = z.strictObject({
  ...either,
  image: text(1, 500).optional(),
  cpus: z.number().positive().max(1_000).optional(),
  memory: quantity.optional(),
  storage: quantity.optional(),
  /** Suspended after this long without a command. */
  idle: duration.optional(),
  /** Deleted this long after it was made. */
  ttl: duration.optional(),
});

/** What a sandbox is to be, as an agent or a session states it. */
export const sandboxChoice = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('virtual'), spec: virtualSpec.optional() }),
  z.strictObject({ kind: z.literal('pod'), spec: podSpec.optional() }),
]);

export type SandboxSpec = z.infer<typeof virtualSpec> | z.infer<typeof podSpec>;
export type SandboxChoice = z.infer<typeof sandboxChoice>;
