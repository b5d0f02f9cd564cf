import { backoffMs, delay } from '../../lib/backoff.ts';
import type { Clock } from '../../lib/clock.ts';
import type { EgressClient } from '../../lib/egress-client.ts';
import { canonicalJson } from '../../lib/canonical-json.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { WeightedLru } from '../../lib/lru.ts';
import { runCall } from './call.ts';
import type { CallDeps } from './call.ts';
import { Access } from './credentials.ts';
import type { CredentialSource } from './credentials.ts';
import { Exchange } from './exchange.ts';
import type { Elicit, Session } from './exchange.ts';
import { failed, failureBefore, outcomeBefore, needsAuth } from './failures.ts';
import { Leg, LegError } from './leg.ts';
import { readTools } from './listing.ts';
import { Places } from './places.ts';
import { MCP_LISTING_MAX_AGE_MS } from './port.ts';
import type {
  McpCall,
  McpCallOptions,
  McpDriver,
  McpListing,
  McpNeedsAuth,
  McpOutcome,
  McpServer,
  McpTools,
  McpUnavailable,
} from './port.ts';
import { Sessions } from './sessions.ts';
import type { Opened, Target } from './sessions.ts';
import { Until } from './until.ts';

export interface McpDriverOptions {
  /** Enforces the policy for outgoing addresses, and follows no redirect. A silent answer ends with the call's deadline. */
  readonly http: EgressClient;
  readonly credentials: CredentialSource;
  readonly clock: Clock;
  /** Calls under way on this node, of one tenant, and of one tenant at one server. */
  readonly calls?: { readonly total: number; readonly perTenant: number; readonly perServer: number };
}

const CALLS = { total: 512, perTenant: 256, perServer: 32 };
/** Listings are read outside of the places for calls: calls that wait for one hold theirs. */
const READS = { total: 64, perTenant: 16, perServer: 2 };
/** Answers that are large (a multiple of `smallAnswerBytes`) at the same time: they bound the memory for answers. */
const LARGE = { total: 16, perTenant: 8, perServer: 2 };
const LISTINGS_WEIGHT_MAX = 67_108_864;
const SESSIONS = { max: 1_000, idleMs: 120_000, revisionMs: MCP_LISTING_MAX_AGE_MS };
/** For a handshake or a listing as a whole, however long its callers would wait. */
const PREPARE_MS = 30_000;
const END_MS = 5_000;
const ATTEMPTS = 3;
const BACKOFF = { baseMs: 200, capMs: 2_000 };
/** A server that wants to be left alone for longer is unavailable. */
const RETRY_AFTER_MAX_MS = 5_000;

interface KeptListing {
  readonly listing: McpTools;
  readonly atMs: number;
}

/** Calls the tools of MCP servers over Streamable HTTP. */
export function openMcpDriver(options: McpDriverOptions): McpDriver {
  return new HttpMcpDriver(options);
}

class HttpMcpDriver implements McpDriver {
  readonly #options: McpDriverOptions;
  readonly #places: Places;
  readonly #reads = new Places(READS);
  readonly #large = new Places(LARGE);
  readonly #listings = new WeightedLru<KeptListing>(LISTINGS_WEIGHT_MAX);
  readonly #reading = new Map<string, Promise<KeptListing>>();
  readonly #sessions: Sessions;
  readonly #stopping = new AbortController();
  readonly #closing = new Set<Promise<void>>();

  constructor(options: McpDriverOptions) {
    this.#options = options;
    this.#places = new Places(options.calls ?? CALLS);
    this.#sessions = new Sessions({
      ...SESSIONS,
      handshake: async (target, isOld) => await this.#handshake(target, isOld),
      end: async (target, session) => await this.#end(target, session),
    });
  }

  async list(
    server: McpServer,
    { signal, deadline }: { readonly signal: AbortSignal; readonly deadline: number },
  ): Promise<McpListing> {
    const late = {
      kind: 'unavailable',
      reason: 'the server did not list its tools in time',
      retryAfterMs: null,
    } as const;
    return await this.#within(signal, deadline, async (until) => {
      const attempt = async (): Promise<McpListing> => {
        const found = await this.#prepare(server, until);
        return 'kind' in found ? found : await this.#listingOutcome(server, found.target, until);
      };
      return await until.unless(async () => await this.#retried(attempt, until), late);
    });
  }

  async call(server: McpServer, call: McpCall, options: McpCallOptions): Promise<McpOutcome> {
    const late = failed('timeout', 'The server was not called: its turn did not come before the deadline.', false);
    return await this.#within(options.signal, call.deadline, async (until) => {
      const attempt = async (): Promise<McpOutcome> => await this.#called(server, { call, options, until });
      return await until.unless(async () => await this.#retried(attempt, until), late);
    });
  }

  async #called(
    server: McpServer,
    input: { readonly call: McpCall; readonly options: McpCallOptions; readonly until: Until },
  ): Promise<McpOutcome> {
    const { until } = input;
    const deps: CallDeps = {
      sessions: this.#sessions,
      listing: async (target, isNew) => await this.#listing(server, target, { until, isNew }),
      closed: (closing) => this.#track(closing),
    };
    const release = await this.#places.take(server.tenant, new URL(server.url).origin, until.signal);
    try {
      const found = await this.#prepare(server, until);
      return 'kind' in found ? found : await runCall(deps, { ...input, ...found });
    } finally {
      release();
    }
  }

  async stop(): Promise<void> {
    await this.#sessions.stop();
    this.#stopping.abort(new Error('the Host is stopping'));
    await Promise.all(this.#closing);
  }

  async #within<T>(signal: AbortSignal, deadline: number, work: (until: Until) => Promise<T>): Promise<T> {
    const leftMs = deadline - this.#options.clock();
    const until = new Until({ signal, stopping: this.#stopping.signal, leftMs });
    try {
      return await work(until);
    } finally {
      until.end();
    }
  }

  /** Again while the server cannot be reached and there is time. */
  async #retried<T extends McpListing | McpOutcome>(attempt: () => Promise<T>, until: Until): Promise<T> {
    for (let count = 1; ; count += 1) {
      const outcome = await attempt();
      if (outcome.kind !== 'unavailable' || count === ATTEMPTS) return outcome;
      const waitMs = outcome.retryAfterMs ?? backoffMs(count - 1, BACKOFF);
      if (waitMs > RETRY_AFTER_MAX_MS || waitMs >= until.leftMs) return outcome;
      await delay(waitMs, until.signal);
      until.signal.throwIfAborted();
    }
  }

  async #prepare(
    server: McpServer,
    until: Until,
  ): Promise<McpNeedsAuth | McpUnavailable | { readonly target: Target; readonly access: Access }> {
    const access = await until.race(Access.of(this.#options.credentials, server));
    const { kind } = access.current;
    if (kind === 'needs_auth') return needsAuth(access.credential);
    if (kind === 'unavailable') {
      return { kind, reason: 'the server that issues its tokens cannot be reached', retryAfterMs: null };
    }
    return { access, target: this.#target(server, access) };
  }

  #target(server: McpServer, access: Access): Target {
    const { tenant, sessionId, url, headers, name, only } = server;
    const key = sha256Hex(JSON.stringify([tenant, url, canonicalJson(headers), access.identity, name, only]));
    return {
      key,
      sessionKey: `${key} ${sessionId}`,
      credential: access.credential,
      open: (session, elicit) => this.#open(server, { access, session, elicit }),
    };
  }

  #open(
    { tenant, url, headers }: McpServer,
    { access, session, elicit }: { access: Access; session: Session | null; elicit: Elicit | null },
  ): Opened {
    const life = new AbortController();
    const end = (): void => life.abort(new Error('closed'));
    if (this.#stopping.signal.aborted) end();
    this.#stopping.signal.addEventListener('abort', end, { once: true });
    const largePlace = async (): Promise<() => void> =>
      await this.#large.take(tenant, new URL(url).origin, life.signal);
    const leg = new Leg({ http: this.#options.http, url, headers, access, signal: life.signal, largePlace });
    const exchange = new Exchange(leg, { url, session, elicit });
    const close = async (): Promise<void> => {
      await exchange.close().catch(() => undefined);
      end();
      this.#stopping.signal.removeEventListener('abort', end);
    };
    return { leg, exchange, close };
  }

  #track(closing: Promise<void>): void {
    const tracked = closing.finally(() => this.#closing.delete(tracked));
    this.#closing.add(tracked);
  }

  /** @throws LegError */
  async #handshake(target: Target, isOld: boolean): Promise<Session> {
    const { leg, exchange, close } = target.open(null, null);
    const options = { timeoutMs: PREPARE_MS, signal: this.#stopping.signal, isOld };
    try {
      return await exchange.connect(null, options);
    } catch (error) {
      throw new LegError(failureBefore(error, leg));
    } finally {
      this.#track(close());
    }
  }

  async #end(target: Target, session: Session): Promise<void> {
    const { exchange, close } = target.open(session, null);
    await Promise.race([exchange.end().catch(() => undefined), delay(END_MS, this.#stopping.signal)]);
    await close();
  }

  async #listingOutcome(server: McpServer, target: Target, until: Until): Promise<McpListing> {
    try {
      return (await this.#listing(server, target, { until, isNew: false })).listing;
    } catch (error) {
      if (!(error instanceof LegError)) throw error;
      return outcomeBefore(error.failure, target.credential);
    }
  }

  /** @throws LegError */
  async #listing(
    server: McpServer,
    target: Target,
    { until, isNew }: { readonly until: Until; readonly isNew: boolean },
  ): Promise<KeptListing> {
    const kept = this.#listings.get(target.key);
    const isFresh = kept !== undefined && performance.now() - kept.atMs < MCP_LISTING_MAX_AGE_MS;
    if (isFresh && !isNew) return kept;
    const reading = this.#reading.get(target.key);
    if (reading !== undefined) return await until.race(reading);
    const mine = this.#read(server, target).finally(() => this.#reading.delete(target.key));
    this.#reading.set(target.key, mine);
    return await until.race(mine);
  }

  /** For all who wait for it, so none of their deadlines counts. @throws LegError */
  async #read(server: McpServer, target: Target): Promise<KeptListing> {
    const { signal } = this.#stopping;
    return await this.#within(signal, this.#options.clock() + PREPARE_MS, async (until) => {
      const release = await this.#reads.take(server.tenant, new URL(server.url).origin, until.signal);
      const atMs = performance.now();
      try {
        const { listing, weight } = await this.#readFrom(server, target, until);
        const kept = { listing, atMs };
        this.#listings.set(target.key, kept, weight);
        return kept;
      } catch (error) {
        if (!until.isOver) throw error;
        throw new LegError({
          kind: 'unavailable',
          reason: 'the server did not list its tools in time',
          retryAfterMs: null,
        });
      } finally {
        release();
      }
    });
  }

  async #readFrom(server: McpServer, target: Target, until: Until) {
    for (let count = 1; ; count += 1) {
      const session = await this.#sessions.get(target);
      const { leg, exchange, close } = target.open(session, null);
      const options = { timeoutMs: until.leftMs, signal: until.signal, isOld: false };
      try {
        await exchange.connect(session, options);
        return await readTools(exchange, server, { session, ...options });
      } catch (error) {
        const isGone = session.era === 'legacy' && (leg.status === 404 || leg.status === 400);
        if (isGone || session.era === 'modern') this.#sessions.forget(target, session);
        if (!isGone || count > 1) throw new LegError(failureBefore(error, leg));
      } finally {
        this.#track(close());
      }
    }
  }
}
