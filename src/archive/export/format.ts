import { z } from 'zod';

export const FORMAT = 'agent-host export 1';

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const fileEntry = z.strictObject({ path: z.string(), size: z.int(), sha256, contentType: z.string() });
const version = { artifactId: z.string(), version: z.int().min(1) };

/** The lines of an export, in this order (docs/audit.md). */
export const line = z.discriminatedUnion('kind', [
  z.strictObject({
    kind: z.literal('export'),
    format: z.literal(FORMAT),
    /** Digest of the public key, short. */
    installation: z.string(),
    exportedAt: z.string(),
    tenant: z.string(),
    session: z.string(),
    withBytes: z.boolean(),
  }),
  /** The commits that follow are of this session: of the exported one last, before it those that it was forked from. */
  z.strictObject({ kind: z.literal('chain'), session: z.string(), subject: z.string() }),
  /** `text` is the commit as it was encoded, character for character: its UTF-8 bytes are what the chain is made of. */
  z.strictObject({ kind: z.literal('commit'), position: z.int(), text: z.string() }),
  /** A version that the commits name, from the artifact's own history. `deleted`: its bytes are gone. */
  z.strictObject({
    kind: z.literal('artifact'),
    ...version,
    name: z.string(),
    type: z.enum(['file', 'folder']),
    size: z.int().min(0),
    sha256,
    contentType: z.string(),
    deleted: z.boolean(),
  }),
  /** Of a folder, with its bytes: its digest is that of these entries as canonical JSON. */
  z.strictObject({ kind: z.literal('tree'), ...version, files: z.array(fileEntry) }),
  /** A part of a file, in base64; `path` of a folder's. */
  z.strictObject({
    kind: z.literal('bytes'),
    ...version,
    path: z.string().nullable(),
    data: z.string(),
    last: z.boolean(),
  }),
  z.strictObject({
    kind: z.literal('end'),
    /** The newest commit of each chain. */
    heads: z.array(z.strictObject({ subject: z.string(), rev: z.int(), position: z.int(), hash: sha256 })),
    commits: z.int(),
    events: z.int(),
    artifacts: z.int(),
  }),
  /** Of everything before this line. */
  z.strictObject({
    kind: z.literal('signature'),
    algorithm: z.literal('Ed25519'),
    publicKey: z.string(),
    signature: z.string(),
  }),
]);

export type Line = z.infer<typeof line>;
export type LineOf<K extends Line['kind']> = Extract<Line, { kind: K }>;

/** What a bundle's signature covers: format, and the SHA-256 of the bytes of every line before the signature. */
export function signedText(digest: string): string {
  return `${FORMAT}\n${digest}\n`;
}
