import type { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { EMPTY_MANIFEST } from '../../domain/sandbox/manifest.ts';
import { MemoryObjects } from '../../drivers/objects/memory.ts';
import type { ObjectAddress } from '../../drivers/objects/port.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { WorkspaceStore } from './workspace-store.ts';
import type { KeptFiles, WorkspaceWriter } from './workspace-store.ts';

const MIB = 1_048_576;

/** Objects that are stored only when the test lets them, and count what is asked of them. */
class HeldObjects extends MemoryObjects {
  readonly opened: string[] = [];
  readonly waiting = new Map<string, { readonly go: () => void; readonly fail: (error: Error) => void }>();
  /** Whether each put waits to be let go. */
  isHeld = true;

  constructor() {
    super(() => 0);
  }

  override async put(address: ObjectAddress, source: AsyncIterable<Uint8Array>): Promise<number> {
    if (this.isHeld) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      this.waiting.set(address.name, { go: resolve, fail: reject });
      await promise;
    }
    return await super.put(address, source);
  }

  override async open(address: ObjectAddress): Promise<Readable | null> {
    this.opened.push(address.name);
    return await super.open(address);
  }

  /** Lets everything go that waits, and all that comes. */
  release(): void {
    this.isHeld = false;
    for (const { go } of this.waiting.values()) go();
  }
}

function storeOf(objects: HeldObjects): WorkspaceStore {
  return new WorkspaceStore(objects, { cacheBytes: 64 * MIB, recordMs: 1_000, clock: () => 0 });
}

async function bring(writer: WorkspaceWriter, texts: readonly string[]): Promise<void> {
  for (const text of texts) await writer.write(sha256Hex(text), Buffer.from(text));
}

const file = (text: string) => ({ path: text.slice(0, 9), sha256: sha256Hex(text), size: text.length, mode: 0o644 });
const manifestOf = (texts: readonly string[]) => ({ ...EMPTY_MANIFEST, files: texts.map(file) });
const settled = async (promise: Promise<unknown>): Promise<boolean> =>
  await Promise.race([
    promise.then(() => true),
    new Promise<false>((resolve) => {
      setTimeout(() => resolve(false), 20);
    }),
  ]);
const empty = async (store: WorkspaceStore): Promise<KeptFiles> => await store.load('t', null);

test('files and their manifest go to the store at the same time, and are kept once it has all of them', async () => {
  const objects = new HeldObjects();
  const store = storeOf(objects);
  const writer = store.writer('t', 'ws_1');
  await bring(writer, ['one', 'two']);
  const keeping = writer.keep(await empty(store), manifestOf(['one', 'two']));
  await expect
    .poll(() => [...objects.waiting.keys()].map((name) => name.replace(/^wo_\w+-/, '')))
    .toEqual(['0', '1', 'm']);
  const [first, second, manifest] = [...objects.waiting.values()];
  manifest?.go();
  first?.go();
  expect(await settled(keeping)).toBe(false);
  second?.go();
  const ref = await keeping;
  const text = (await store.bytes('t', ref.object)).toString();
  expect(sha256Hex(text)).toBe(ref.manifest);
  expect(writer.storedBytes).toBe(6 + text.length);
});

test('a file that cannot be stored is no part of what is kept, whenever that shows', async () => {
  const objects = new HeldObjects();
  const store = storeOf(objects);
  const writer = store.writer('t', 'ws_1');
  await bring(writer, ['one', 'two']);
  const away = new Error('the store is away');
  [...objects.waiting.values()][1]?.fail(away);
  await settled(Promise.resolve());
  const keeping = writer.keep(await empty(store), manifestOf(['one', 'two']));
  const ended = keeping.catch((error: unknown) => error);
  objects.release();
  expect(await ended).toBe(away);
  // Nothing of it comes later: it would lie there after it was removed.
  await writer.discard();
  for await (const page of objects.list()) expect(page).toEqual([]);
});

test('a few files are under way at once, and not more than a MiB of them', async () => {
  const objects = new HeldObjects();
  const store = storeOf(objects);
  const texts = Array.from({ length: 20 }, (_, n) => `text ${n}`);
  const many = bring(store.writer('t', 'ws_1'), texts);
  await expect.poll(() => objects.waiting.size).toBe(8);
  expect(await settled(many)).toBe(false);
  objects.release();
  await many;
  objects.isHeld = true;
  objects.waiting.clear();
  const large = bring(
    store.writer('t', 'ws_2'),
    ['a', 'b', 'c'].map((letter) => letter.repeat(0.6 * MIB)),
  );
  await expect.poll(() => objects.waiting.size).toBe(1);
  expect(await settled(large)).toBe(false);
  objects.release();
  await large;
});

test('what was written, or read once, is read from memory, of its tenant alone, until the tenant is erased', async () => {
  const objects = new HeldObjects();
  objects.release();
  const store = storeOf(objects);
  const texts = ['one', 'x'.repeat(MIB)];
  const writer = store.writer('t', 'ws_1');
  await bring(writer, texts);
  const ref = await writer.keep(await empty(store), manifestOf(texts));
  const read = async (from: WorkspaceStore, tenant: string, text: string): Promise<string> => {
    const contents = from.writer(tenant, 'ws_1').contents(await store.load('t', ref));
    return Buffer.from(await contents.read(sha256Hex(text))).toString();
  };
  expect(await read(store, 't', 'one')).toBe('one');
  expect(objects.opened).toEqual([]);
  const other = storeOf(objects);
  for (let times = 0; times < 2; times++) for (const text of texts) expect(await read(other, 't', text)).toBe(text);
  // The long one each time.
  expect(objects.opened.map((name) => name.replace(/^wo_\w+-/, ''))).toEqual(['0', '1', '1']);
  await expect(read(other, 'u', 'one')).rejects.toThrow(/not there/);
  await objects.eraseTenant('t');
  expect(await read(other, 't', 'one')).toBe('one');
  other.forget('t');
  await expect(read(other, 't', 'one')).rejects.toThrow(/not there/);
});
