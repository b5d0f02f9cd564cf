import type { LiveCommit } from './event-store.ts';

/** Live commits that may wait, of one aggregate, while others are read or written. */
export const KEPT_MAX = 1_000;

/** Bytes of live commits that wait in this node's lanes. */
export class KeptBytes {
  readonly #max: number;
  bytes = 0;

  constructor(max: number) {
    this.#max = max;
  }

  hasRoom(bytes: number): boolean {
    return this.bytes + bytes <= this.#max;
  }
}

/** Live commits of one aggregate that wait, in order. */
export class KeptCommits {
  readonly #kept: KeptBytes;
  #items: { readonly commit: LiveCommit; readonly bytes: number }[] = [];

  constructor(kept: KeptBytes) {
    this.#kept = kept;
  }

  get first(): LiveCommit | undefined {
    return this.#items[0]?.commit;
  }

  /** Returns whether there was room. */
  push(commit: LiveCommit): boolean {
    const { bytes } = commit;
    if (this.#items.length >= KEPT_MAX || !this.#kept.hasRoom(bytes)) return false;
    this.#items.push({ commit, bytes });
    this.#kept.bytes += bytes;
    return true;
  }

  shift(): void {
    this.#kept.bytes -= this.#items.shift()?.bytes ?? 0;
  }

  clear(): void {
    for (const { bytes } of this.#items) this.#kept.bytes -= bytes;
    this.#items = [];
  }
}
