import { ofThisPart } from '../../lib/fault-points.ts';
import type { KeyValue, KeyValueChange, KeyValueEntry } from '../key-value.ts';
import { after, turn } from './turn.ts';

/** A value, or the marker of one that was removed or ran out. */
interface Slot {
  readonly value: string | null;
  readonly revision: number;
  /** Prevents its end. */
  readonly stay: () => void;
}

interface Watcher {
  readonly isBelow: (key: string) => boolean;
  readonly onChange: (change: KeyValueChange) => void;
}

/** A bucket in the memory of this process. */
export class MemoryKeyValue implements KeyValue {
  readonly #slots = new Map<string, Slot>();
  readonly #watchers = new Set<Watcher>();
  #revision = 0;

  async get(key: string): Promise<KeyValueEntry | null> {
    await turn();
    const slot = this.#slots.get(key);
    if (slot === undefined || slot.value === null) return null;
    return { key, value: slot.value, revision: slot.revision };
  }

  async newest(key: string): Promise<KeyValueEntry | null> {
    return await this.get(key);
  }

  async put(key: string, value: string): Promise<number> {
    const revision = this.#set(key, value);
    await turn();
    return revision;
  }

  async swap(key: string, value: string, options: { expected: number; ttlMs?: number }): Promise<number | null> {
    const slot = this.#slots.get(key);
    const isFree = slot === undefined || slot.value === null;
    const isExpected = options.expected === (slot?.revision ?? 0) || (options.expected === 0 && isFree);
    const revision = isExpected ? this.#set(key, value, options.ttlMs) : null;
    await turn();
    return revision;
  }

  async remove(key: string): Promise<void> {
    this.#set(key, null);
    await turn();
  }

  async shred(key: string): Promise<void> {
    this.#drop(key);
    await turn();
  }

  async erase(prefix: string): Promise<void> {
    for (const key of this.#slots.keys()) if (key.startsWith(`${prefix}.`)) this.#drop(key);
    await turn();
  }

  async watch(prefix: string, onChange: (change: KeyValueChange) => void, signal: AbortSignal): Promise<void> {
    await turn();
    if (signal.aborted) return;
    const told = ofThisPart((change: KeyValueChange): void => {
      if (!signal.aborted) onChange(change);
    });
    const watcher: Watcher = { isBelow: (key) => prefix === '' || key.startsWith(`${prefix}.`), onChange: told };
    this.#watchers.add(watcher);
    signal.addEventListener('abort', () => this.#watchers.delete(watcher), { once: true });
    const present = [...this.#slots].toSorted(([, a], [, b]) => a.revision - b.revision);
    for (const [key, slot] of present) if (watcher.isBelow(key)) told(changeOf(key, slot));
  }

  /** No entry runs out any more, and nothing is watched. */
  close(): void {
    for (const { stay } of this.#slots.values()) stay();
    this.#watchers.clear();
  }

  #set(key: string, value: string | null, ttlMs?: number): number {
    this.#slots.get(key)?.stay();
    this.#revision += 1;
    const revision = this.#revision;
    const stay = ttlMs === undefined ? () => undefined : this.#endsAfter(key, ttlMs);
    const slot = { value, revision, stay };
    this.#slots.set(key, slot);
    const change = changeOf(key, slot);
    // Later, as a server's answer: who writes while it is told is not called within its own write.
    setImmediate(() => {
      for (const { isBelow, onChange } of this.#watchers) if (isBelow(key)) onChange(change);
    });
    return revision;
  }

  #endsAfter(key: string, ttlMs: number): () => void {
    return after(Math.max(1, Math.round(ttlMs / 1000)) * 1000, () => void this.#set(key, null));
  }

  #drop(key: string): void {
    this.#slots.get(key)?.stay();
    this.#slots.delete(key);
  }
}

function changeOf(key: string, { value, revision }: Slot): KeyValueChange {
  return value === null ? { kind: 'removed', key } : { kind: 'put', entry: { key, value, revision } };
}
