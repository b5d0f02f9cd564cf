import { join } from 'node:path';
import { z } from 'zod';
import { readIfPresent, writeAtomically } from '../../lib/files.ts';
import { StartError } from '../../lib/start-error.ts';

/** Raised with any change that an older `restore` would not understand. */
const FORMAT = 1;

const sealed = { file: z.string().min(1), bytes: z.int().min(0), sha256: z.string().regex(/^[0-9a-f]{64}$/) };

const stream = z.strictObject({
  name: z.string().min(1),
  ...sealed,
  /** How many messages the stream had and its first sequence when the copy began; the last sequence of the backup. */
  messages: z.int().min(0),
  firstSequence: z.int().min(0),
  lastSequence: z.int().min(0),
  /** As the server gave them and expects them. */
  config: z.looseObject({ name: z.string() }),
  state: z.looseObject({ messages: z.int(), first_seq: z.int(), last_seq: z.int() }),
});

const schema = z.strictObject({
  format: z.literal(FORMAT),
  /** Names the files that belong to this backup. */
  id: z.string().regex(/^[0-9A-Z]{26}$/),
  version: z.string(),
  /** Everything that was acknowledged before `begunAt` is in the backup. */
  begunAt: z.iso.datetime(),
  endedAt: z.iso.datetime(),
  shards: z.int().min(1),
  /** Opens with the Host key of the installation, and with no other. */
  hostKeyCheck: z.string().min(1),
  /** In the order in which they are to be restored. */
  streams: z.array(stream).min(2),
  objects: z.strictObject({ ...sealed, count: z.int().min(0), totalBytes: z.int().min(0) }),
});

/** What a backup consists of. It is written last: a directory without one holds no whole backup. */
export type Manifest = z.infer<typeof schema>;
export type StreamEntry = Manifest['streams'][number];

export const MANIFEST_FORMAT = FORMAT;
const fileOf = (directory: string): string => join(directory, 'manifest.json');

export async function writeManifest(directory: string, manifest: Manifest): Promise<void> {
  await writeAtomically(fileOf(directory), `${JSON.stringify(manifest, null, 2)}\n`, 0o600);
}

/** Null when there is none. @throws StartError when it is not a manifest of this format */
export async function readManifest(directory: string): Promise<Manifest | null> {
  const text = await readIfPresent(fileOf(directory));
  if (text === undefined) return null;
  const parsed = schema.safeParse(parse(text));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new StartError(
    `${fileOf(directory)} is not a manifest of a backup that this version can read (${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}); use a version that wrote it, or another directory`,
  );
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
