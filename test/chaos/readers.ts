import { items as itemsPage } from '#src/http/wire/schemas.ts';
import { delay } from '#src/lib/backoff.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import type { Random } from '../support/random.ts';
import type { SseReader } from '../support/sse.ts';

const PAUSE_MS = 100;
const SILENCE_MS = 1_000;
const PAGE = 100;
const PAGE_EVERY_MS = 1_500;

/** A reader of one session; `records` is what it has been given so far, in that order. */
export interface Reader {
  readonly kind: 'stream' | 'pages';
  readonly sessionId: string;
  readonly records: readonly EventRecord[];
}

/** Follows the live stream, and takes it up elsewhere behind the last event whenever it ends, and now and then anyway. */
export class StreamReader implements Reader {
  readonly kind = 'stream';
  readonly sessionId: string;
  readonly records: EventRecord[] = [];
  readonly #tenant: TenantClient;
  readonly #random: Random;
  #lastId: string | undefined;
  #connections = 0;

  constructor(tenant: TenantClient, sessionId: string, random: Random) {
    this.#tenant = tenant;
    this.sessionId = sessionId;
    this.#random = random;
  }

  get reconnects(): number {
    return Math.max(0, this.#connections - 1);
  }

  async run(stop: AbortSignal): Promise<void> {
    while (!stop.aborted) {
      const start = this.#lastId === undefined ? {} : { lastEventId: this.#lastId };
      const reader = await this.#tenant.events(this.sessionId, start).catch(() => null);
      if (reader !== null) await this.#read(reader, stop);
      else await delay(PAUSE_MS, stop);
    }
  }

  async #read(reader: SseReader, stop: AbortSignal): Promise<void> {
    this.#connections++;
    const leaveAt = performance.now() + this.#random.int(2_000, 15_000);
    const close = (): void => reader.close();
    stop.addEventListener('abort', close, { once: true });
    try {
      while (performance.now() < leaveAt) {
        // Frames that came before the connection ended are given first: what was delivered counts.
        const frame = await reader.next(SILENCE_MS).catch(() => undefined);
        if (frame === null) return;
        if (frame === undefined || frame.id === null) continue;
        this.records.push(JSON.parse(frame.data) as EventRecord);
        this.#lastId = frame.id;
      }
    } finally {
      stop.removeEventListener('abort', close);
      reader.close();
    }
  }
}

/** Reads the history page by page, each behind the one before, and goes on as it grows. */
export class PageReader implements Reader {
  readonly kind = 'pages';
  readonly sessionId: string;
  readonly records: EventRecord[] = [];
  readonly #tenant: TenantClient;
  #cursor: string | null = null;

  constructor(tenant: TenantClient, sessionId: string) {
    this.#tenant = tenant;
    this.sessionId = sessionId;
  }

  async run(stop: AbortSignal): Promise<void> {
    while (!stop.aborted) {
      const hasMore = await this.#page();
      if (!hasMore) await delay(PAGE_EVERY_MS, stop);
    }
  }

  async #page(): Promise<boolean> {
    const query = new URLSearchParams({ limit: String(PAGE) });
    if (this.#cursor !== null) query.set('cursor', this.#cursor);
    const path = `/v1/sessions/${encodeURIComponent(this.sessionId)}/items?${query.toString()}`;
    const answer = await this.#tenant.request({ path }).catch(() => null);
    if (answer?.status !== 200) return false;
    const page = itemsPage.parse(answer.json);
    this.records.push(...page.items);
    this.#cursor = page.cursor ?? this.#cursor;
    return page.hasMore;
  }
}
