import { isLoopbackHost } from './egress.ts';

/** A server's address as its tokens name it (RFC 8707): without query, fragment, and a slash at the end. */
export function canonicalResource(url: string): string {
  const { origin, pathname } = new URL(url);
  return `${origin}${pathname.replace(/\/+$/, '')}`;
}

/** Characters that some servers read as a slash: with them, one path is not surely below another. */
const HIDDEN_SLASH = /%2f|%5c/i;

/**
 * How much of a URL's path is covered by a credential given for another URL, in characters; null: it may not be sent
 * there. It covers its own origin only, its own path and what is below it.
 */
export function coveredPath(credentialUrl: string, target: string): number | null {
  if (!URL.canParse(target) || !URL.canParse(credentialUrl)) return null;
  const [own, other] = [new URL(credentialUrl), new URL(target)];
  if (own.origin !== other.origin || other.username !== '' || other.password !== '') return null;
  if (other.protocol !== 'https:' && !(other.protocol === 'http:' && isLoopbackHost(other.hostname))) return null;
  const base = own.pathname.replace(/\/+$/, '');
  if (other.pathname === own.pathname) return base.length;
  if (HIDDEN_SLASH.test(other.pathname)) return null;
  return other.pathname === base || other.pathname.startsWith(`${base}/`) ? base.length : null;
}
