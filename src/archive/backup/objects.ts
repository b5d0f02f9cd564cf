import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { pathOf } from '../../drivers/objects/port.ts';
import type { ObjectAddress, ObjectStore } from '../../drivers/objects/port.ts';
import { Sealing, writeStream } from './files.ts';
import type { FileSeal } from './files.ts';
import { ByteProgress } from './progress.ts';

/**
 * The objects of a backup by their paths. It is held in memory, some 200 bytes for each object; the bytes themselves
 * never are.
 */
export type ObjectIndex = Map<string, FileSeal>;

const AT_ONCE = 4;

/** One line for each object: its path, its bytes, its SHA-256. */
export async function writeIndex(path: string, index: ObjectIndex): Promise<FileSeal> {
  return await writeStream(path, linesOf(index));
}

export async function readIndex(path: string): Promise<ObjectIndex> {
  const index: ObjectIndex = new Map();
  for await (const line of createInterface({ input: createReadStream(path) })) {
    const [object = '', bytes = '', sha256 = ''] = line.split(' ');
    index.set(object, { bytes: Number(bytes), sha256 });
  }
  return index;
}

async function* linesOf(index: ObjectIndex): AsyncGenerator<Uint8Array> {
  let text = '';
  for (const [path, { bytes, sha256 }] of index) {
    text += `${path} ${bytes} ${sha256}\n`;
    if (text.length < 65_536) continue;
    yield await Promise.resolve(Buffer.from(text));
    text = '';
  }
  yield Buffer.from(text);
}

interface Copying {
  readonly from: ObjectStore;
  readonly to: ObjectStore;
  readonly progress: ByteProgress;
}

interface Missing {
  readonly from: ObjectStore;
  readonly to: ObjectStore;
  /** What an earlier backup has there; null: there is one, and what it has is not known. */
  readonly known: ObjectIndex | null;
}

/**
 * Copies every object of a store that the index does not name yet, and names it there. An object never changes under
 * its address: what an earlier backup named, or an interrupted one copied, is not fetched again. But it is read where it
 * lies, and is copied again when it is no longer what was copied then: otherwise a disk that damages one file would make
 * every later backup useless, which is found when it is needed.
 */
export async function copyMissing({ from, to, known }: Missing, index: ObjectIndex): Promise<void> {
  const progress = new ByteProgress('objects');
  const reading = new ByteProgress('objects that were there');
  const there = await sizesOf(to);
  let copied = 0;
  for await (const page of from.list()) {
    await eachOf(page, async (object) => {
      const path = pathOfObject(object);
      if (index.has(path)) return;
      const isThere = known !== null && there.get(path) === object.bytes;
      const kept = isThere ? await keptSeal(to, object, { known: known.get(path), reading }) : null;
      const seal = kept ?? (await copyObject({ from, to, progress }, object));
      // Null: it was removed between the list and the copy.
      if (seal === null) return;
      index.set(path, seal);
      if (kept === null) copied++;
    });
  }
  progress.end(`, ${copied} copied, ${index.size} in all`);
}

/** Null when what is there is not what was known of it, or cannot be read. */
async function keptSeal(
  to: ObjectStore,
  object: ObjectAddress,
  { known, reading }: { readonly known: FileSeal | undefined; readonly reading: ByteProgress },
): Promise<FileSeal | null> {
  const seal = await sealOf(to, object, reading).catch(() => null);
  if (seal !== null && seal.sha256 === (known ?? seal).sha256) return seal;
  process.stderr.write(`${pathOfObject(object)}: damaged in the backup, copied again\n`);
  return null;
}

/** Null when the object is gone. */
async function copyObject({ from, to, progress }: Copying, object: ObjectAddress): Promise<FileSeal | null> {
  const source = await from.open(object);
  if (source === null) return null;
  const sealing = new Sealing();
  await to.put(object, sealing.through(source, progress));
  return sealing.result();
}

async function sealOf(store: ObjectStore, object: ObjectAddress, progress: ByteProgress): Promise<FileSeal | null> {
  const source = await store.open(object);
  if (source === null) return null;
  const sealing = new Sealing();
  for await (const _chunk of sealing.through(source, progress));
  return sealing.result();
}

async function sizesOf(store: ObjectStore): Promise<ReadonlyMap<string, number>> {
  const sizes = new Map<string, number>();
  for await (const page of store.list()) for (const object of page) sizes.set(pathOfObject(object), object.bytes);
  return sizes;
}

/** Removes what a store has and the index does not name. */
export async function removeOthers(store: ObjectStore, index: ObjectIndex): Promise<void> {
  for await (const page of store.list()) {
    await eachOf(page, async (object) => {
      if (!index.has(pathOfObject(object))) await store.remove(object);
    });
  }
  await store.removeUnfinished(Date.now());
}

/** Copies the objects that an index names, unless they exist with the same number of bytes. */
export async function putBack(
  { from, to }: { readonly from: ObjectStore; readonly to: ObjectStore },
  index: ObjectIndex,
): Promise<void> {
  const progress = new ByteProgress('objects');
  const there = await sizesOf(to);
  const missing = [...index].filter(([path, { bytes }]) => there.get(path) !== bytes);
  await eachOf(missing, async ([path, { sha256 }]) => {
    const [tenant = '', owner = '', name = ''] = path.split('/');
    const copied = await copyObject({ from, to, progress }, { tenant, owner, name });
    if (copied?.sha256 !== sha256)
      throw new Error(`the object ${path} of the backup has changed while it was restored`);
  });
  progress.end(`, ${index.size} in all`);
}

function pathOfObject({ tenant, owner, name }: ObjectAddress): string {
  return pathOf(tenant, owner, name);
}

/** A few at a time; the first failure ends it. */
async function eachOf<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const waiting = items.values();
  const lane = async (): Promise<void> => {
    for (const item of waiting) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
}
