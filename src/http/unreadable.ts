import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { randomUUID } from 'node:crypto';
import { problemBody, ProblemError, STATUS_OF } from './problem.ts';
import type { Problem } from './problem.ts';

/** Requests that cannot be read as they were sent: a broken percent-encoding, or bytes that are not HTTP. */

const malformed = new WeakSet<IncomingMessage>();

/**
 * The router refuses a URL with a broken percent-encoding before any check. Here its percent signs are escaped instead,
 * so that the request finds its route and is refused where the order of checks says: when the path and query are validated.
 */
export function routableUrl(request: IncomingMessage): string {
  const { url = '/' } = request;
  if (!url.includes('%') || isWellFormed(url)) return url;
  malformed.add(request);
  return url.replaceAll('%', '%25');
}

function isWellFormed(url: string): boolean {
  try {
    decodeURIComponent(url);
    return true;
  } catch {
    return false;
  }
}

export function isMalformed(request: IncomingMessage): boolean {
  return malformed.has(request);
}

export function malformedUrl(): ProblemError {
  const issues = [{ path: 'path', message: 'has a malformed percent-encoding' }];
  const message = 'The request is invalid: the URL has a malformed percent-encoding.';
  return new ProblemError({ code: 'invalid_request', message, details: { issues } });
}

const REASONS: Readonly<Record<string, string>> = {
  HPE_HEADER_OVERFLOW: 'The headers of the request are too long.',
  ERR_HTTP_REQUEST_TIMEOUT: 'The request was not sent in time.',
};

/** The HTTP server's error for a too slow request. */
export function requestTimeout(): Error & { readonly code: string } {
  return Object.assign(new Error('the request was not sent in time'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
}

/** Answers bytes that the HTTP parser gives up on, in the form that every refusal has, and closes the connection. */
export function refuseUnparsed(error: Error & { readonly code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable || isAnswering(socket)) {
    socket.destroy();
    return;
  }
  const message = REASONS[error.code ?? ''] ?? 'The request is not valid HTTP.';
  const problem: Problem = { code: 'invalid_request', message };
  const requestId = randomUUID();
  const body = JSON.stringify(problemBody(problem, requestId));
  const head = [
    `HTTP/1.1 ${STATUS_OF[problem.code]} Bad Request`,
    `x-request-id: ${requestId}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
}

/** Whether an answer is on its way already: another one inside it would be part of its body. */
function isAnswering(socket: Socket): boolean {
  const answer: unknown = Reflect.get(socket, '_httpMessage');
  return typeof answer === 'object' && answer !== null && 'headersSent' in answer && answer.headersSent === true;
}
