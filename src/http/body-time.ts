import type { IncomingMessage } from 'node:http';
import { refuseUnparsed, requestTimeout } from './unreadable.ts';

/**
 * Refuses a body not complete in time, and closes its connection. The server's own timeout is one for all requests, and
 * an upload may take longer than a command.
 */
export function limitBodyTime(request: IncomingMessage, withinMs: number): void {
  const { 'content-length': length, 'transfer-encoding': chunked } = request.headers;
  if (chunked === undefined && (length === undefined || length === '0')) return;
  const timer = setTimeout(() => {
    if (!request.complete) refuseUnparsed(requestTimeout(), request.socket);
  }, withinMs);
  timer.unref();
  request.once('end', () => clearTimeout(timer));
  request.once('close', () => clearTimeout(timer));
}
