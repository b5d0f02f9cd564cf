import { z } from 'zod';
import { ROLES } from '../roles.ts';

/** What the supervisor tells one of its processes. */
const serversDown = z.strictObject({ nats: z.boolean(), postgres: z.boolean() });

const toProcess = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('start'),
    number: z.int(),
    roles: z.array(z.enum(ROLES)),
    isServing: z.boolean(),
    natsUrl: z.string(),
    databaseUrl: z.string(),
    /** Its part of what the machine can do at once. */
    sandboxChildren: z.int(),
    /** How many processes serve requests, and share the connections to Postgres. */
    servingProcesses: z.int(),
    down: serversDown,
  }),
  /** Which embedded servers have ended and are being started again. */
  z.strictObject({ kind: z.literal('servers'), down: serversDown }),
  z.strictObject({ kind: z.literal('stop'), reason: z.string(), drainMs: z.int(), othersServe: z.boolean() }),
  z.strictObject({ kind: z.literal('ask'), id: z.int(), what: z.enum(['metrics', 'ready']) }),
]);
export type ToProcess = z.infer<typeof toProcess>;
export type StartMessage = Extract<ToProcess, { kind: 'start' }>;
export type StopMessage = Extract<ToProcess, { kind: 'stop' }>;
export type Question = Extract<ToProcess, { kind: 'ask' }>['what'];

/** What a process tells its supervisor. */
const fromProcess = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('ready'), address: z.string().nullable() }),
  /** It ends, for a reason that the person at the terminal can act on. */
  z.strictObject({ kind: z.literal('failed'), message: z.string(), code: z.string(), exitCode: z.int() }),
  z.strictObject({ kind: z.literal('answer'), id: z.int(), text: z.string() }),
  /** An operator has asked it to stop the whole Host. */
  z.strictObject({ kind: z.literal('shut-down') }),
]);
export type FromProcess = z.infer<typeof fromProcess>;

/** Throws for anything else: both ends are of one program. */
export const parseToProcess = (message: unknown): ToProcess => toProcess.parse(message);
export const parseFromProcess = (message: unknown): FromProcess => fromProcess.parse(message);
