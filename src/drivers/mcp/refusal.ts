import { z } from 'zod';

/* What the status of an answer says about the call that it answers. */

/** Characters of an answer with an error status that are looked at. */
export const REFUSAL_CHARS_MAX = 65_536;
const RETRY_AFTER_MAX_S = 3_600;
const INTERNAL_ERROR = -32_603;
/** Of JSON-RPC, for requests that no method got. */
const NOT_TAKEN: readonly number[] = [-32_700, -32_600, -32_601, -32_602];
/** With these a server refuses a message; what a tool comes to has status 200. */
const REFUSING: readonly number[] = [400, 403, 404];

const rpcError = z.looseObject({
  jsonrpc: z.literal('2.0'),
  error: z.looseObject({ code: z.number() }),
  id: z.union([z.string(), z.number()]).nullish(),
});

/**
 * Whether an answer with an error status proves that the call was not carried out: the server itself says so, in an error
 * of the protocol. A status alone proves nothing: a proxy in between gives it too, also when the server has got the call.
 */
export function provesRefusal(status: number, body: string): boolean {
  try {
    const parsed = rpcError.safeParse(JSON.parse(body));
    if (!parsed.success) return false;
    const { error, id = null } = parsed.data;
    // It may have failed in the middle of the call; whatever failed may know no id.
    if (error.code === INTERNAL_ERROR) return false;
    // Without an id: of a request that it could not read.
    return id === null || NOT_TAKEN.includes(error.code) || REFUSING.includes(status);
  } catch {
    return false;
  }
}

/** What an answer means that the protocol's client is not shown. */
export type StatusFailure =
  | { readonly kind: 'needs_auth' }
  | { readonly kind: 'address_refused'; readonly reason: string }
  | { readonly kind: 'unavailable'; readonly reason: string; readonly retryAfterMs: number | null };

/** Null: the client is shown it. */
export function failureOfStatus(
  status: number,
  headers: { readonly get: (name: string) => string | null },
): StatusFailure | null {
  if (status >= 300 && status < 400) {
    return { kind: 'address_refused', reason: 'it redirects to another address; redirects are not followed' };
  }
  if (status === 403 && /insufficient_scope/i.test(headers.get('www-authenticate') ?? ''))
    return { kind: 'needs_auth' };
  if (status !== 429 && status !== 503) return null;
  const seconds = Number(headers.get('retry-after') ?? Number.NaN);
  const retryAfterMs = seconds >= 0 ? Math.min(seconds, RETRY_AFTER_MAX_S) * 1_000 : null;
  const reason =
    status === 429 ? 'the server says that it gets too many requests' : 'the server says that it is unavailable';
  return { kind: 'unavailable', reason, retryAfterMs };
}
