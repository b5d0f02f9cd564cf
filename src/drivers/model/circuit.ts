import { hash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { backoffMs } from '../../lib/backoff.ts';
import type { ModelOutcome } from '../../domain/turn/model-outcome.ts';
import { failed } from './failure.ts';
import type { ModelConnection, ModelConnections, ModelDriver, ModelRequest } from './port.ts';

/** Failures in a row, over all calls of a tenant's key for a model, after which it counts as down. */
const FAILURES = 5;
/** How long nothing is sent to a model that is down before one call tries it again, ms; longer each time that it fails. */
const PAUSE = { baseMs: 1_000, capMs: 30_000 };
/** What one call that tries it may keep the others waiting, ms; then another one may try. */
const PROBE_MS = 30_000;
/** Those that failed of late; a model that is forgotten counts as up. */
const KEPT_MAX = 10_000;

/** What says that the provider is down, not that it has something against the request, the key or its rate. */
const DOWN: ReadonlySet<string> = new Set([
  ...['model_overloaded', 'model_provider_error', 'model_unreachable', 'model_timeout'],
]);

interface Failing {
  readonly failures: number;
  /** Nothing is sent before; ms. */
  readonly closedUntil: number;
}

export interface CircuitsDeps {
  readonly connections: ModelConnections;
  readonly clock: () => number;
  /** 0 to 1, spreads those that wait. */
  readonly random: () => number;
}

/**
 * Models that have failed several times in a row are sent nothing until one call has tried them again: what is down does not
 * get up sooner with more calls, and a fallback answers at once.
 *
 *   up ─ FAILURES in a row → down ─ pause → one call tries it ─ answers → up
 *                             ↑                      └─ fails ─┐
 *                             └────────── longer pause ────────┘
 *
 * Per tenant, address, key and model: what one tenant's key meets says nothing about another's.
 */
export class Circuits {
  readonly #failing = new LRUCache<string, Failing>({ max: KEPT_MAX });
  readonly #deps: CircuitsDeps;

  constructor(deps: CircuitsDeps) {
    this.#deps = deps;
  }

  /** The same driver, which sends nothing to a model that is down. */
  around(provider: string, driver: ModelDriver): ModelDriver {
    return {
      ...driver,
      call: async (request, signal, onDelta) => {
        const connection = await this.#deps.connections(request.tenant, provider);
        const key = keyOf(provider, request, connection);
        const before = this.#failing.get(key);
        const isDown = before !== undefined && before.failures >= FAILURES;
        if (isDown) {
          const leftMs = before.closedUntil - this.#deps.clock();
          if (leftMs > 0) return notSent(leftMs, this.#deps.random());
        }
        // The others wait for what this one finds.
        const probe = isDown ? { ...before, closedUntil: this.#deps.clock() + PROBE_MS } : null;
        if (probe !== null) this.#failing.set(key, probe);
        const outcome = await driver.call(request, signal, onDelta);
        if (!signal.aborted) this.#note(key, outcome, probe !== null);
        else if (isDown && this.#failing.get(key) === probe) this.#failing.set(key, before);
        return outcome;
      },
    };
  }

  #note(key: string, outcome: ModelOutcome, isProbe: boolean): void {
    if (outcome.kind === 'completed' || outcome.retryAfterMs === null || !DOWN.has(outcome.error.code)) {
      this.#failing.delete(key);
      return;
    }
    const known = this.#failing.get(key)?.failures ?? 0;
    // Calls that were under way when it went down fail for the same reason, and say nothing new.
    if (known >= FAILURES && !isProbe) return;
    const failures = known + 1;
    const pauseMs = backoffMs(Math.max(0, failures - FAILURES), PAUSE);
    const wantedMs = Math.min(outcome.retryAfterMs, PAUSE.capMs);
    this.#failing.set(key, { failures, closedUntil: this.#deps.clock() + Math.max(pauseMs, wantedMs) });
  }
}

function notSent(leftMs: number, random: number): ModelOutcome {
  const message = 'The provider has failed several times in a row, so nothing was sent to it. It is tried again soon.';
  const failure = failed({ code: 'model_overloaded', message, retry: true });
  return { ...failure, retryAfterMs: Math.ceil(leftMs + random * PAUSE.baseMs), notSent: true };
}

/** The key itself is nowhere but where it is used. */
function keyOf(provider: string, { tenant, model }: ModelRequest, { baseUrl, key }: ModelConnection): string {
  const digest = key.kind === 'known' ? hash('sha256', key.apiKey).slice(0, 16) : key.kind;
  return [tenant, provider, baseUrl ?? '', digest, model].join(' ');
}
