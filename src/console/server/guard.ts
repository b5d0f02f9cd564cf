import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';

export interface Refusal {
  readonly status: number;
  readonly code: string;
  readonly message: string;
}

const SAFE_METHODS = new Set(['GET', 'HEAD']);
/** How a browser may fetch data here: from the page, as a download, or for a picture; never as a script or a style. */
const DATA_DESTINATIONS = new Set(['empty', 'document', 'image']);

export function isSafe({ method }: IncomingMessage): boolean {
  return SAFE_METHODS.has(method ?? '');
}

/** It says that one follows, whether there is anything in it or not. */
export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) !== 0;
}

/**
 * The name that a browser knows the console by. A page elsewhere whose name was pointed at this machine (DNS rebinding)
 * sends its own name.
 */
export function refusedName({ host }: IncomingHttpHeaders, port: number): Refusal | null {
  const names = ['127.0.0.1', 'localhost', '[::1]'].map((name) => `${name}:${port}`);
  if (host !== undefined && names.includes(host)) return null;
  const message = `open the console by its own address, http://${names[0]}`;
  return { status: 421, code: 'host_rejected', message };
}

/** Data goes to the console's own page. A request that changes something must say where it comes from. */
export function refusedOrigin(request: IncomingMessage): Refusal | null {
  const { host, origin, 'sec-fetch-site': site, 'sec-fetch-dest': destination } = request.headers;
  const message = 'only the pages of the console may ask for this';
  const refusal = { status: 403, code: 'origin_rejected', message };
  if (origin === undefined ? !isSafe(request) : origin !== `http://${host}`) return refusal;
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return refusal;
  return typeof destination === 'string' && !DATA_DESTINATIONS.has(destination) ? refusal : null;
}

/** The value of a cookie. One that is sent twice counts as none: the other was planted. */
export function cookieOf({ cookie = '' }: IncomingHttpHeaders, name: string): string | undefined {
  const values = cookie
    .split(';')
    .map((pair) => pair.trim())
    .filter((pair) => pair.startsWith(`${name}=`));
  return values.length === 1 ? values[0]?.slice(name.length + 1) : undefined;
}
