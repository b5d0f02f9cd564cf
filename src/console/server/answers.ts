import type { ServerResponse } from 'node:http';

/** What every answer says: no frame, no sniffing, no referrer, no sharing with other origins. */
export const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
} as const;

/** Of the pages: scripts and styles are files of the console, nothing else is called, and no text becomes HTML or code. */
export const PAGE_POLICY = [
  ...["default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data: blob:"],
  ...["connect-src 'self'", "font-src 'self'", "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'"],
  ...["require-trusted-types-for 'script'", "trusted-types 'none'"],
].join('; ');

/** Of what a tenant or a model wrote: opened by itself, it runs nothing and belongs to no origin. */
export const DATA_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox";

/** An answer of the console itself, as JSON. */
export function answerJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, {
    ...SECURITY_HEADERS,
    'content-security-policy': DATA_POLICY,
    'content-type': 'application/json; charset=utf-8',
    'cache-control': 'no-store',
    ...headers,
  });
  response.end(JSON.stringify(body));
}

/** A refusal: a code for programs, and a message that says what to do. */
export function refuse(
  response: ServerResponse,
  status: number,
  { code, message }: { readonly code: string; readonly message: string },
): void {
  // A body that was refused is not read to its end.
  answerJson(response, status, { code, message }, { connection: 'close' });
}
