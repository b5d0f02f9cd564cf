import { createHash } from 'node:crypto';

/**
 * A place in a list, bound to its route and filters by a checksum: the cursor of another list does not decode.
 * The key is what the list is ordered by.
 */
export function encodePageCursor(scope: string, key: readonly string[]): string {
  const body = Buffer.from(JSON.stringify(key)).toString('base64url');
  return `${check(scope, body)}${body}`;
}

/** The key, or null when the text is not a cursor of this list. `parts` is how many texts the key has. */
export function decodePageCursor(scope: string, cursor: string, parts: number): string[] | null {
  const body = cursor.slice(CHECK_CHARS);
  if (cursor.length > 2_000 || !/^[A-Za-z0-9_-]+$/.test(cursor) || !cursor.startsWith(check(scope, body))) return null;
  try {
    const key: unknown = JSON.parse(Buffer.from(body, 'base64url').toString());
    return Array.isArray(key) && key.length === parts && key.every(isKeyPart) ? key : null;
  } catch {
    return null;
  }
}

/** The check keeps mistakes out, not forged cursors: a NUL is not text for Postgres. */
function isKeyPart(part: unknown): part is string {
  return typeof part === 'string' && !part.includes('\0');
}

const CHECK_CHARS = 8;

/** Over the key too: a cursor that was cut or mistyped is invalid and must not become another place. */
function check(scope: string, body: string): string {
  return createHash('sha256').update(`${scope}\0${body}`).digest('base64url').slice(0, CHECK_CHARS);
}
