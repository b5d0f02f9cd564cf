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
  /** Ends what it has open. */
  readonly ended: AbortSignal;
  idleAtMs: number;
  /** The tenant that its pages show; null: none is chosen yet. */
  tenant: string | null;
}

interface Kept extends SignedIn {
  readonly end: () => void;
}

/** Links and those who have used them. They live as long as the process, and only hashes of their secrets do. */
export class SignIns {
  readonly #now: () => number;
  readonly #links = new Map<string, number>();
  readonly #signedIn = new Map<string, Kept>();
  readonly #tenant: string | null;

  /** @param tenant what everybody sees first; null: they choose. @param now ms since 1970 */
  constructor(tenant: string | null, now: () => number = Date.now) {
    this.#tenant = tenant;
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
    const nowMs = this.#now();
    const ending = new AbortController();
    this.#signedIn.set(hashOf(cookie), {
      ...{ csrf: secret(), endsAtMs: nowMs + ABSOLUTE_MS, idleAtMs: nowMs + IDLE_MS, tenant: this.#tenant },
      ...{ ended: ending.signal, end: () => ending.abort() },
    });
    keepNewest(this.#signedIn, SIGNED_IN_MAX, ({ end }) => end());
    return cookie;
  }

  /** Whose cookie it is; being asked for counts as being used. */
  find(cookie: string | undefined): SignedIn | null {
    if (cookie === undefined) return null;
    this.endLate();
    const found = this.#signedIn.get(hashOf(cookie));
    if (found === undefined) return null;
    found.idleAtMs = this.#now() + IDLE_MS;
    return found;
  }

  /** Ends those that have lasted long enough, or have not been used for long. */
  endLate(): void {
    const nowMs = this.#now();
    for (const [hash, { endsAtMs, idleAtMs }] of this.#signedIn)
      if (Math.min(endsAtMs, idleAtMs) <= nowMs) this.#end(hash);
  }

  signOut(cookie: string): void {
    this.#end(hashOf(cookie));
  }

  #end(hash: string): void {
    this.#signedIn.get(hash)?.end();
    this.#signedIn.delete(hash);
  }
}

function secret(): string {
  return randomBytes(32).toString('base64url');
}

/** Looked up by its hash, so that the time of a look-up says nothing about the secret. */
function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}

function keepNewest<T>(map: Map<string, T>, most: number, onDropped: (value: T) => void = () => undefined): void {
  for (const [key, value] of map) {
    if (map.size <= most) return;
    map.delete(key);
    onDropped(value);
  }
}
