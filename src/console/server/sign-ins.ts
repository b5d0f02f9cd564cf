import { createHash, randomBytes } from 'node:crypto';

const LINK_MS = 10 * 60_000;
const IDLE_MS = 8 * 3_600_000;
const ABSOLUTE_MS = 24 * 3_600_000;
/** Beyond these the oldest ends: a person has a few browsers, and uses one link at a time. */
const LINKS_MAX = 4;
const SIGNED_IN_MAX = 16;

/** A browser that is signed in. */
export interface SignedIn {
  /** What its page repeats in a header of each request that changes something. */
  readonly csrf: string;
  /** When it ends at the latest, ms since 1970. */
  readonly endsAtMs: number;
  idleAtMs: number;
}

/** Links and those who have used them. They live as long as the process, and only hashes of their secrets do. */
export class SignIns {
  readonly #now: () => number;
  readonly #links = new Map<string, number>();
  readonly #signedIn = new Map<string, SignedIn>();

  /** @param now ms since 1970 */
  constructor(now: () => number = Date.now) {
    this.#now = now;
  }

  /** A token that signs one browser in, once, within ten minutes. */
  link(): string {
    const token = secret();
    this.#links.set(hashOf(token), this.#now() + LINK_MS);
    keepNewest(this.#links, LINKS_MAX);
    return token;
  }

  /** Trades the token of a link for a cookie's value; null: it was used, is too old, or never was one. */
  signIn(token: string): string | null {
    const hash = hashOf(token);
    const untilMs = this.#links.get(hash);
    this.#links.delete(hash);
    if (untilMs === undefined || untilMs <= this.#now()) return null;
    const cookie = secret();
    const endsAtMs = this.#now() + ABSOLUTE_MS;
    this.#signedIn.set(hashOf(cookie), { csrf: secret(), endsAtMs, idleAtMs: this.#now() + IDLE_MS });
    keepNewest(this.#signedIn, SIGNED_IN_MAX);
    return cookie;
  }

  /** Whose cookie it is; being asked for counts as being used. */
  find(cookie: string | undefined): SignedIn | null {
    if (cookie === undefined) return null;
    const hash = hashOf(cookie);
    const found = this.#signedIn.get(hash);
    if (found === undefined) return null;
    const nowMs = this.#now();
    if (Math.min(found.endsAtMs, found.idleAtMs) <= nowMs) {
      this.#signedIn.delete(hash);
      return null;
    }
    found.idleAtMs = nowMs + IDLE_MS;
    return found;
  }

  signOut(cookie: string): void {
    this.#signedIn.delete(hashOf(cookie));
  }
}

function secret(): string {
  return randomBytes(32).toString('base64url');
}

/** Looked up by its hash, so that the time of a look-up says nothing about the secret. */
function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}

function keepNewest(map: Map<string, unknown>, most: number): void {
  for (const key of map.keys()) {
    if (map.size <= most) return;
    map.delete(key);
  }
}
