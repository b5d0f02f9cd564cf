import { LRUCache } from 'lru-cache';
import type { Elicit, Exchange, Session } from './exchange.ts';
import type { Leg } from './leg.ts';
import type { McpNeedsAuth } from './port.ts';

/** A server under the credential of a call. */
export interface Target {
  /** What listings are kept by: tenant, address, headers, credential. */
  readonly key: string;
  /** The same with the Host's session. */
  readonly sessionKey: string;
  /** The one that is used; null: none. */
  readonly credential: McpNeedsAuth['credential'];
  /** Opens connections to it. */
  readonly open: (session: Session | null, elicit: Elicit | null) => Opened;
}

export interface Opened {
  readonly leg: Leg;
  readonly exchange: Exchange;
  /** Resolves soon; what is under way ends with it. Never rejects. */
  readonly close: () => Promise<void>;
}

export interface SessionsOptions {
  /** How many are kept, and how long without a use, ms. */
  readonly max: number;
  readonly idleMs: number;
  /** How long a server counts as one of its revision before it is asked again, ms. */
  readonly revisionMs: number;
  readonly handshake: (target: Target, isOld: boolean) => Promise<Session>;
  /** Tells a server that a session of its own is over. Never throws. */
  readonly end: (target: Target, session: Session) => Promise<void>;
}

interface Kept {
  readonly target: Target;
  readonly session: Session;
  /** Calls that use it now, and when the last one ended (`performance.now`). */
  users: number;
  usedAt: number;
  /** Why it is no longer offered: dropped here, or ended by the server. */
  gone: 'dropped' | 'ended' | null;
}

/**
 * What is known of servers. Those of the newer revision keep nothing, so one answer serves all sessions of a tenant; with
 * those of older ones each session of the Host has its own.
 */
export class Sessions {
  readonly #options: SessionsOptions;
  readonly #modern: LRUCache<string, Session>;
  readonly #old: LRUCache<string, true>;
  readonly #legacy: LRUCache<string, Kept>;
  readonly #opening = new Map<string, Promise<Session>>();
  readonly #ending = new Set<Promise<void>>();
  /** Set while there are sessions that may become idle. */
  #timer: NodeJS.Timeout | undefined;

  constructor(options: SessionsOptions) {
    this.#options = options;
    const { max, revisionMs } = options;
    this.#modern = new LRUCache({ max, ttl: revisionMs });
    this.#old = new LRUCache({ max, ttl: revisionMs });
    this.#legacy = new LRUCache({ max, dispose: (kept) => this.#drop(kept) });
  }

  /** @throws what the handshake throws */
  async get(target: Target): Promise<Session> {
    const known = this.#modern.get(target.key) ?? this.#legacy.get(target.sessionKey)?.session;
    if (known !== undefined) return known;
    const opening = this.#opening.get(target.sessionKey);
    if (opening !== undefined) return await opening;
    const mine = this.#open(target).finally(() => this.#opening.delete(target.sessionKey));
    this.#opening.set(target.sessionKey, mine);
    return await mine;
  }

  /** However long a call takes, its session is not ended meanwhile; returns the function that lets go of it. */
  hold({ sessionKey }: Target, session: Session): () => void {
    const kept = this.#legacy.get(sessionKey);
    if (kept?.session !== session) return () => undefined;
    kept.users += 1;
    return () => {
      kept.users -= 1;
      kept.usedAt = performance.now();
      if (kept.gone === 'dropped') this.#drop(kept);
    };
  }

  /** The server no longer knows it. */
  forget({ key, sessionKey }: Target, session: Session): void {
    if (this.#modern.peek(key) === session) this.#modern.delete(key);
    const kept = this.#legacy.peek(sessionKey);
    if (kept?.session !== session) return;
    kept.gone = 'ended';
    this.#legacy.delete(sessionKey);
    this.#old.delete(key);
  }

  async stop(): Promise<void> {
    clearTimeout(this.#timer);
    this.#legacy.clear();
    await Promise.all(this.#ending);
  }

  async #open(target: Target): Promise<Session> {
    this.#dropIdle();
    const session = await this.#options.handshake(target, this.#old.has(target.key));
    if (session.era === 'modern') this.#modern.set(target.key, session);
    else {
      this.#old.set(target.key, true);
      this.#legacy.set(target.sessionKey, { session, target, users: 0, usedAt: performance.now(), gone: null });
      this.#dropIdleLater();
    }
    return session;
  }

  #dropIdle(): void {
    const before = performance.now() - this.#options.idleMs;
    const idle = [...this.#legacy.entries()].filter(([, { users, usedAt }]) => users === 0 && usedAt < before);
    for (const [key] of idle) this.#legacy.delete(key);
  }

  /** However long nothing else is opened. */
  #dropIdleLater(): void {
    if (this.#timer !== undefined) return;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.#dropIdle();
        if (this.#legacy.size > 0) this.#dropIdleLater();
      },
      Math.max(1, this.#options.idleMs),
    );
    this.#timer.unref();
  }

  /** Its last user ends it. */
  #drop(kept: Kept): void {
    const { target, session, users, gone } = kept;
    if (gone === 'ended') return;
    kept.gone = 'dropped';
    if (users > 0 || session.era === 'modern' || session.id === null) return;
    const ending = this.#options.end(target, session).then(() => void this.#ending.delete(ending));
    this.#ending.add(ending);
  }
}
