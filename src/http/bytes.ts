import { create } from 'content-disposition';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { Readable } from 'node:stream';
import type { Downloads } from './downloads.ts';
import { ProblemError } from './problem.ts';

/** Bytes that a route sends: whole, or the requested range. */
export interface SentBytes {
  /** As the receiver should save it. */
  readonly name: string;
  readonly contentType: string;
  readonly size: number;
  readonly sha256: string;
  /** Whose share in what a node sends (downloads.ts). */
  readonly of: string;
  readonly open: (range?: { readonly first: number; readonly last: number }) => Promise<Readable>;
}

const CACHE_CONTROL = 'private, no-cache';

/**
 * What a stranger uploaded is never shown in place: no type sniffing, always an attachment, and no script should a
 * browser open it anyway.
 */
function secured(reply: FastifyReply, name: string, contentType: string): FastifyReply {
  return reply.headers({
    'content-type': contentType,
    'content-disposition': create(name),
    'x-content-type-options': 'nosniff',
    'content-security-policy': "sandbox; default-src 'none'",
    'cache-control': CACHE_CONTROL,
  });
}

/** Answers with bytes of a known length: ranges, entity tags, HEAD. */
export async function sendBytes(
  downloads: Downloads,
  request: FastifyRequest,
  reply: FastifyReply,
  bytes: SentBytes,
): Promise<FastifyReply> {
  const { size, of } = bytes;
  const sent = async (open: () => Promise<Readable>): Promise<Readable> =>
    request.method === 'HEAD' ? nothing() : await downloads.body({ request, response: reply.raw, of, open });
  const tag = `"${bytes.sha256}"`;
  // A 304 carries what the 200 would (RFC 9110, section 15.4.5).
  reply.headers({ etag: tag, 'accept-ranges': 'bytes', 'cache-control': CACHE_CONTROL });
  if (hasTag(request.headers['if-none-match'], tag)) return await reply.code(304).send();
  const range = isFor(request.headers['if-range'], tag) ? rangeOf(request.headers.range, size) : null;
  if (range === 'unsatisfiable') throw unsatisfiable(size);
  secured(reply, bytes.name, bytes.contentType);
  if (range === null) {
    reply.header('content-length', size);
    return await reply.send(await sent(bytes.open));
  }
  reply
    .code(206)
    .header('content-length', range.last - range.first + 1)
    .header('content-range', `bytes ${range.first}-${range.last}/${size}`);
  return await reply.send(await sent(async () => await bytes.open(range)));
}

/** Answers with bytes that are generated as they are sent. */
export async function sendMade(
  downloads: Downloads,
  request: FastifyRequest,
  reply: FastifyReply,
  made: Pick<SentBytes, 'name' | 'contentType' | 'of'> & { readonly open: () => Promise<Readable> },
): Promise<FastifyReply> {
  secured(reply, made.name, made.contentType);
  const { of, open } = made;
  const sent = request.method === 'HEAD' ? nothing() : await downloads.body({ request, response: reply.raw, of, open });
  return await reply.send(sent);
}

/** For HEAD: the framework keeps the length that was set when the body is a stream. */
function nothing(): Readable {
  return Readable.from([]);
}

function hasTag(header: string | undefined, tag: string): boolean {
  if (header === undefined) return false;
  if (header.trim() === '*') return true;
  return header.split(',').some((one) => one.trim().replace(/^W\//, '') === tag);
}

function isFor(header: string | string[] | undefined, tag: string): boolean {
  return header === undefined || header === tag;
}

/** One range of bytes. Several, or an invalid one, is answered with the whole (RFC 9110, section 14.2). */
function rangeOf(
  header: string | undefined,
  size: number,
): { readonly first: number; readonly last: number } | 'unsatisfiable' | null {
  const [whole, from = '', to = ''] = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? '') ?? [];
  if (whole === undefined || (from === '' && to === '')) return null;
  if (from === '') {
    const length = Math.min(Number(to), size);
    return length === 0 ? 'unsatisfiable' : { first: size - length, last: size - 1 };
  }
  const first = Number(from);
  const last = to === '' ? size - 1 : Math.min(Number(to), size - 1);
  if (to !== '' && Number(to) < first) return null;
  return first >= size ? 'unsatisfiable' : { first, last };
}

function unsatisfiable(size: number): ProblemError {
  const message = `The range is outside of the content, which has ${size} bytes.`;
  return new ProblemError({
    code: 'range_not_satisfiable',
    message,
    headers: { 'content-range': `bytes */${size}` },
  });
}
