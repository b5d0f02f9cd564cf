/** One entry of a key-value bucket. */
export interface KeyValueEntry {
  readonly key: string;
  readonly value: string;
  readonly revision: number;
}

export type KeyValueChange =
  | { readonly kind: 'put'; readonly entry: KeyValueEntry }
  | { readonly kind: 'removed'; readonly key: string };

/**
 * A small replicated map. Keys have letters, digits, `.`, `_`, `-`, `=`; values are text.
 * @throws UnavailableError (streams) from every operation while the server is out of reach
 */
export interface KeyValue {
  get(key: string): Promise<KeyValueEntry | null>;
  /** As `get`, but from the leader: what any node was told is stored is there. A replica may answer `get`, and be behind. */
  newest(key: string): Promise<KeyValueEntry | null>;
  /** Writes unconditionally. Returns the revision. */
  put(key: string, value: string): Promise<number>;
  /**
   * Writes only if the newest revision of the key is `expected` (0 = there is none). `ttlMs`, whole seconds, lets the
   * entry expire; each write must set it again. Returns the revision, or null when another writer won.
   */
  swap(key: string, value: string, options: { expected: number; ttlMs?: number }): Promise<number | null>;
  remove(key: string): Promise<void>;
  /**
   * Removes an entry and overwrites its bytes where they are stored; without a marker, so that watchers may hear of it much
   * later, or never. What an earlier value of the key was is not overwritten.
   */
  shred(key: string): Promise<void>;
  /** Removes every key below a prefix (`prefix.…`) without leaving markers: watchers may hear of it much later, or never. */
  erase(prefix: string): Promise<void>;
  /** Resolves once everything that is there has been reported; then continues until the signal aborts. */
  watch(prefix: string, onChange: (change: KeyValueChange) => void, signal: AbortSignal): Promise<void>;
}
