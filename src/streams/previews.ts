import { LRUCache } from 'lru-cache';
import type { Signals } from './signals.ts';
import { escapeToken } from './subjects.ts';
import type { AggregateRef } from './subjects.ts';

/** How often a node repeats what its readers ask for; a node that started meanwhile learns it then. */
const REPEAT_MS = 5_000;
/** What was asked for counts for this long, so that the interest of a node that died ends. */
const ASKED_MS = 15_000;
const ASKED_MAX = 50_000;
/** Sessions that one note names: some 80 bytes each. */
const NAMED_MAX = 500;

const FRAMES = 'preview.';
const ASKED = 'previews-asked';

/** A piece of an answer that is being written, for the readers of a session. JSON, never stored. */
export type OnPreview = (text: string) => void;

/**
 * Takes pieces of answers from the node that runs a turn to those that have readers of its session: by signals, so they
 * may be lost. Nothing is sent for a session whose previews no reader of any node asks for.
 */
export class Previews {
  readonly #signals: Signals;
  /**
   * What readers of all nodes have asked for of late. By size: with a greatest number of entries it makes room for all of
   * them at once, 10 ms of a start.
   */
  readonly #asked = new LRUCache<string, true>({ maxSize: ASKED_MAX, sizeCalculation: () => 1, ttl: ASKED_MS });
  /** The readers of this node. */
  readonly #readers = new Map<string, { readonly told: Set<OnPreview>; readonly unlisten: () => void }>();
  readonly #unlisten: () => void;
  readonly #timer: NodeJS.Timeout;

  constructor(signals: Signals, repeatMs = REPEAT_MS) {
    this.#signals = signals;
    this.#unlisten = signals.listen(ASKED, (_, text) => {
      for (const key of text.split('\n')) this.#asked.set(key, true);
    });
    this.#timer = setInterval(() => this.#ask([...this.#readers.keys()]), repeatMs);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#unlisten();
    for (const { unlisten } of this.#readers.values()) unlisten();
    this.#readers.clear();
  }

  /** Whether a reader of any node wants previews of the session. */
  isAsked(ref: AggregateRef): boolean {
    return this.#asked.has(keyOf(ref));
  }

  send(ref: AggregateRef, text: string): void {
    this.#signals.send(`${FRAMES}${keyOf(ref)}`, text);
  }

  /** Passes the previews of a session on until the returned function is called. */
  follow(ref: AggregateRef, onPreview: OnPreview): () => void {
    const key = keyOf(ref);
    const told = this.#readers.get(key)?.told ?? this.#begin(key);
    told.add(onPreview);
    return () => {
      if (!told.delete(onPreview) || told.size > 0) return;
      this.#readers.get(key)?.unlisten();
      this.#readers.delete(key);
    };
  }

  #begin(key: string): Set<OnPreview> {
    const told = new Set<OnPreview>();
    const unlisten = this.#signals.listen(`${FRAMES}${key}`, (_, text) => {
      for (const onPreview of told) onPreview(text);
    });
    this.#readers.set(key, { told, unlisten });
    this.#ask([key]);
    return told;
  }

  #ask(keys: readonly string[]): void {
    for (let at = 0; at < keys.length; at += NAMED_MAX) {
      this.#signals.send(ASKED, keys.slice(at, at + NAMED_MAX).join('\n'));
    }
  }
}

function keyOf({ tenant, id }: AggregateRef): string {
  return `${escapeToken(tenant)}.${escapeToken(id)}`;
}
