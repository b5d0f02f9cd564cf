import { readdir, readFile } from 'node:fs/promises';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { join, sep } from 'node:path';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import mime from 'mime';
import { PAGE_POLICY, refuse, SECURITY_HEADERS } from './answers.ts';

interface File {
  readonly bytes: Buffer;
  /** Compressed when it is first asked for: all of them together took 38 ms of a start. */
  readonly zipped: () => Promise<Buffer>;
  readonly type: string;
  readonly caching: string;
}

/** The pages by their paths, in memory: a path that is not among them leads nowhere. */
export type Files = ReadonlyMap<string, File>;

const zip = promisify(gzip);
/** One of the encodings that a client names; with a weight of 0 it does not take it (RFC 9110, 12.5.3). */
const GZIP = /^\s*gzip\s*(;\s*q=(?!0(\.0*)?\s*$).*)?$/i;
const PAGE = '/index.html';
/** The build names these by their content. */
const ASSETS = '/assets/';

/** Reads a build of the pages. @throws when the directory cannot be read */
export async function readFiles(directory: string): Promise<Files> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const found = entries
    .filter((entry) => entry.isFile())
    .map(async (entry) => {
      const place = join(entry.parentPath, entry.name);
      const path = place.slice(directory.length).split(sep).join('/');
      const bytes = await readFile(place);
      const caching = path.startsWith(ASSETS) ? 'public, max-age=31536000, immutable' : 'no-cache';
      const type = mime.getType(path) ?? 'application/octet-stream';
      return [path, { bytes, zipped: zippedOnce(bytes), type, caching }] as const;
    });
  return new Map(await Promise.all(found));
}

function zippedOnce(bytes: Buffer): () => Promise<Buffer> {
  let zipped: Promise<Buffer> | undefined;
  return () => (zipped ??= zip(bytes));
}

/** A file, or the page that knows what is at such a path. */
export async function answerFile(
  files: Files,
  { path, status = 200 }: { readonly path: string; readonly status?: number },
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { accept = '', 'accept-encoding': encodings = '' } = request.headers;
  const isPage = !path.startsWith(ASSETS) && accept.includes('text/html');
  const file = files.get(path) ?? (isPage || path === '/' ? files.get(PAGE) : undefined);
  if (file === undefined) return refuse(response, 404, { code: 'not_found', message: 'there is no such page' });
  const isZipped = String(encodings)
    .split(',')
    .some((encoding) => GZIP.test(encoding));
  const bytes = isZipped ? await file.zipped() : file.bytes;
  response.writeHead(status, {
    ...SECURITY_HEADERS,
    'content-security-policy': PAGE_POLICY,
    'content-type': file.type.startsWith('text/') ? `${file.type}; charset=utf-8` : file.type,
    'content-length': bytes.length,
    'cache-control': file.caching,
    vary: 'accept-encoding',
    ...(isZipped ? { 'content-encoding': 'gzip' } : {}),
  });
  response.end(request.method === 'HEAD' ? undefined : bytes);
}
