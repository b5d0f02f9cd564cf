import { Readable } from 'node:stream';
import type { Clock } from '../../lib/clock.ts';
import { pathOf } from './port.ts';
import type { ByteRange, ObjectAddress, ObjectStore, PutOptions, StoredObject } from './port.ts';

const PAGE = 1_000;

interface Held {
  readonly object: StoredObject;
  readonly content: Buffer;
}

/** Objects in the memory of this process, whole. */
export class MemoryObjects implements ObjectStore {
  readonly #clock: Clock;
  readonly #objects = new Map<string, Held>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  async check(): Promise<void> {
    await Promise.resolve();
  }

  async put(address: ObjectAddress, source: AsyncIterable<Uint8Array>, { signal }: PutOptions = {}): Promise<number> {
    const path = keyOf(address);
    const parts: Uint8Array[] = [];
    for await (const part of source) {
      signal?.throwIfAborted();
      parts.push(part);
    }
    signal?.throwIfAborted();
    const content = Buffer.concat(parts);
    const { tenant, owner, name } = address;
    const bytes = content.length;
    const object = { tenant, owner, name, bytes, modifiedAtMs: this.#clock() };
    this.#objects.set(path, { object, content });
    return bytes;
  }

  async open(address: ObjectAddress, range?: ByteRange): Promise<Readable | null> {
    const held = this.#objects.get(keyOf(address));
    if (held === undefined) return await Promise.resolve(null);
    const { content } = held;
    const part = range === undefined ? content : content.subarray(range.first, range.last + 1);
    return await Promise.resolve(Readable.from([part], { objectMode: false }));
  }

  async remove(address: ObjectAddress): Promise<void> {
    this.#objects.delete(keyOf(address));
    await Promise.resolve();
  }

  async removeOwner(tenant: string, owner: string): Promise<void> {
    await this.#removeBelow(pathOf(tenant, owner));
  }

  async eraseTenant(tenant: string): Promise<void> {
    await this.#removeBelow(pathOf(tenant));
  }

  async *list(): AsyncIterable<readonly StoredObject[]> {
    const all = [...this.#objects.values()];
    for (let at = 0; at < all.length; at += PAGE) {
      const page = all.slice(at, at + PAGE);
      yield await Promise.resolve(page.map(({ object }) => object));
    }
  }

  /** A write that did not end has left nothing. */
  async removeUnfinished(): Promise<number> {
    return await Promise.resolve(0);
  }

  async #removeBelow(path: string): Promise<void> {
    for (const key of this.#objects.keys()) if (key.startsWith(`${path}/`)) this.#objects.delete(key);
    await Promise.resolve();
  }
}

function keyOf({ tenant, owner, name }: ObjectAddress): string {
  return pathOf(tenant, owner, name);
}
