import { z } from 'zod';
import { MANIFEST_ENTRIES_MAX } from '../../domain/sandbox/manifest.ts';

/** What a child may send. It may have been taken over by a script, so no message is trusted unchecked. */
const text = z.string();
const number = z.int().min(0).max(Number.MAX_SAFE_INTEGER);
const source = z.union([z.strictObject({ given: number }), z.strictObject({ sent: number })]);

export const childMessage = z.discriminatedUnion('type', [
  z.strictObject({ type: z.literal('ready') }),
  z.strictObject({ type: z.literal('read'), file: number }),
  z.strictObject({
    type: z.literal('web'),
    request: number,
    method: text.max(32),
    url: text.max(8_192),
    headers: z.record(text.max(256), text.max(16_384)),
  }),
  z.strictObject({ type: z.literal('bytes') }),
  z.strictObject({ type: z.literal('exceeded'), message: text.max(2_048), cpuMs: number }),
  z.strictObject({
    type: z.literal('done'),
    stdout: text,
    stderr: text,
    truncated: z.boolean(),
    exitCode: z.int().min(0).max(255),
    cpuMs: number,
    files: z
      .array(z.tuple([text.max(4_096), number, source]))
      .max(MANIFEST_ENTRIES_MAX)
      .nullable(),
    directories: z.array(text.max(4_096)).max(MANIFEST_ENTRIES_MAX),
  }),
]);
