import { Readable } from 'node:stream';
import { z } from 'zod';
import { bytesOf, workspaceManifest, EMPTY_MANIFEST } from '../../domain/sandbox/manifest.ts';
import type { WorkspaceManifest } from '../../domain/sandbox/manifest.ts';
import type { FilesRef } from '../../domain/sandbox/events.ts';
import type { ByteRange, ObjectAddress, ObjectStore } from '../../drivers/objects/port.ts';
import type { ContentStore } from '../../drivers/sandbox/port.ts';
import type { Clock } from '../../lib/clock.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { newId } from '../../lib/ids.ts';
import { WeightedLru } from '../../lib/lru.ts';
import { UnavailableError } from '../../lib/unavailable.ts';
import type { CacheFigures } from '../repository.ts';

/**
 * Contents and manifests of workspaces in the object store. Each sandbox has an owner of its own there (`ws_…`), and everything
 * that changes its files writes under a name of its own (`wo_…`), which is never used again: so an object that no recorded manifest
 * names can be removed without asking who may be writing it just now. Manifests say where each content is, perhaps
 * under the owner of another sandbox: a fork or an export gets files without copying a byte.
 */
export class WorkspaceStore {
  readonly #objects: ObjectStore;
  readonly #known: WeightedLru<KeptFiles>;
  /** By tenant and object. What a command has written or read is mostly read by the next one. */
  readonly #contents: WeightedLru<Buffer>;
  #hits = 0;
  #misses = 0;
  readonly #recordMs: number;
  readonly #clock: Clock;

  /** @param options `recordMs`: how long what is written may stay unrecorded; what is older may be swept. */
  constructor(objects: ObjectStore, options: WorkspaceStoreOptions) {
    this.#objects = objects;
    this.#known = new WeightedLru(options.cacheBytes / 2);
    this.#contents = new WeightedLru(options.cacheBytes / 2);
    this.#recordMs = options.recordMs;
    this.#clock = options.clock;
  }

  /** The files that a reference names; null: an empty workspace. @throws UnavailableError (objects) */
  async load(tenant: string, ref: FilesRef | null): Promise<KeptFiles> {
    if (ref === null) return NO_FILES;
    const key = `${tenant}/${ref.object}`;
    const known = this.#known.get(key);
    if (known !== undefined) {
      this.#hits++;
      return known;
    }
    this.#misses++;
    const text = (await this.bytes(tenant, ref.object)).toString();
    if (sha256Hex(text) !== ref.manifest) throw new Error('a manifest is not the one that was recorded');
    const { objects, ...manifest } = storedManifest.parse(JSON.parse(text));
    const files = new KeptFiles(manifest, new Map(manifest.files.map(({ sha256 }, i) => [sha256, objects[i] ?? ''])));
    this.#keep(key, files);
    return files;
  }

  /** For one change of a sandbox's files. @param workspace the sandbox's owner in the store */
  writer(tenant: string, workspace: string): WorkspaceWriter {
    const name = `${workspace}/${newId('wo')}`;
    return new WorkspaceWriter(name, {
      read: async (object) => await this.#content(tenant, object),
      write: async (object, bytes) => {
        const address = addressOf(tenant, object);
        await this.#objects.put(address, Readable.from([bytes]), { declaredBytes: bytes.length });
      },
      written: (object, bytes) => this.#keepContent(`${tenant}/${object}`, bytes),
      remove: async (object) => await this.#objects.remove(addressOf(tenant, object)),
      kept: (object, files) => this.#keep(`${tenant}/${object}`, files),
      recordMs: this.#recordMs,
      clock: this.#clock,
    });
  }

  /** @throws UnavailableError (objects), also when what a manifest names is missing: the store has lost data */
  async open(tenant: string, object: string, range?: ByteRange): Promise<Readable> {
    const stream = await this.#objects.open(addressOf(tenant, object), range);
    if (stream === null) throw new UnavailableError('objects', 'an object that a workspace names is not there');
    return stream;
  }

  async bytes(tenant: string, object: string): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for await (const chunk of await this.open(tenant, object)) chunks.push(Buffer.from(chunk));
    return Buffer.concat(chunks);
  }

  /** Of the manifests and contents in memory. */
  get cacheFigures(): CacheFigures {
    const [entries, bytes] = [this.#known.size + this.#contents.size, this.#known.weight + this.#contents.weight];
    return { entries, bytes, hits: this.#hits, misses: this.#misses };
  }

  /** Forgets what is in memory of a tenant's files. */
  forget(tenant: string): void {
    for (const kept of [this.#known, this.#contents]) kept.deleteWhere((key) => key.startsWith(`${tenant}/`));
  }

  /** An object is never written twice, so what was read once is what is there. */
  async #content(tenant: string, object: string): Promise<Buffer> {
    const key = `${tenant}/${object}`;
    const known = this.#contents.get(key);
    if (known !== undefined) {
      this.#hits++;
      return known;
    }
    this.#misses++;
    const bytes = await this.bytes(tenant, object);
    this.#keepContent(key, bytes);
    return bytes;
  }

  /** A copy: it may be a part of something larger. */
  #keepContent(key: string, bytes: Uint8Array): void {
    if (bytes.length <= KEPT_CONTENT_MAX) this.#contents.set(key, Buffer.from(bytes), 500 + bytes.length);
  }

  #keep(key: string, files: KeptFiles): void {
    const { manifest } = files;
    this.#known.set(key, files, 500 + manifest.files.length * 350 + manifest.directories.length * 100);
  }
}

/** A longer file is read from the store each time, bytes. */
const KEPT_CONTENT_MAX = 262_144;

interface WorkspaceStoreOptions {
  /** For manifests and the contents of files, half each. */
  readonly cacheBytes: number;
  readonly recordMs: number;
  readonly clock: Clock;
}

/** A manifest as its object has it: where the bytes of each file are, in the order of the files. */
const storedManifest = workspaceManifest.extend({ objects: z.array(z.string()) });

/** How the name of a manifest's object ends. */
const MANIFEST = '-m';

function addressOf(tenant: string, object: string): ObjectAddress {
  const [owner = '', name = ''] = object.split('/');
  return { tenant, owner, name };
}

/** Files, and where their bytes are. */
export class KeptFiles {
  readonly manifest: WorkspaceManifest;
  readonly #objects: ReadonlyMap<string, string>;

  /** @param objects by hash, as `<owner>/<name>` */
  constructor(manifest: WorkspaceManifest, objects: ReadonlyMap<string, string>) {
    this.manifest = manifest;
    this.#objects = objects;
  }

  /** Where the bytes of a hash are; undefined: no file has them. */
  find(sha256: string): string | undefined {
    return this.#objects.get(sha256);
  }

  /** As `find`, of a file of the manifest. */
  objectOf(sha256: string): string {
    const object = this.find(sha256);
    if (object === undefined) throw new Error('a manifest does not say where a file is');
    return object;
  }
}

const NO_FILES = new KeptFiles(EMPTY_MANIFEST, new Map());

interface WriterStore {
  readonly read: (object: string) => Promise<Buffer>;
  readonly write: (object: string, bytes: Uint8Array) => Promise<void>;
  /** Called with the content of a file that the store has. */
  readonly written: (object: string, bytes: Uint8Array) => void;
  readonly remove: (object: string) => Promise<void>;
  readonly kept: (object: string, files: KeptFiles) => void;
  readonly recordMs: number;
  readonly clock: Clock;
}

/** Files that may be on their way to the store at once, and their bytes; a longer one goes by itself. */
const UNDER_WAY = 8;
const UNDER_WAY_BYTES = 1_048_576;

/**
 * What one change of a sandbox's files brings into the store. Nothing names it until the change is recorded, so files and
 * the manifest go there at the same time, and `keep` waits for all of them.
 */
export class WorkspaceWriter {
  /** Bytes that the store has of it so far. */
  storedBytes = 0;
  readonly #name: string;
  readonly #store: WriterStore;
  readonly #written = new Map<string, string>();
  readonly #manifests: string[] = [];
  #underWay: Promise<void>[] = [];
  #underWayBytes = 0;
  /** When it wrote first. */
  #firstMs: number | null = null;

  constructor(name: string, store: WriterStore) {
    this.#name = name;
    this.#store = store;
  }

  /** Contents for a call that begins with these files. */
  contents(base: KeptFiles): ContentStore {
    return {
      read: async (sha256) => await this.#store.read(base.objectOf(sha256)),
      write: async (sha256, bytes) => {
        if (base.find(sha256) === undefined) await this.write(sha256, bytes);
      },
    };
  }

  /** Before it is recorded. @throws UnavailableError (objects) when that comes so late that it may have been swept */
  checkAge(): void {
    const { clock, recordMs } = this.#store;
    if (clock() - (this.#firstMs ?? clock()) < recordMs) return;
    throw new UnavailableError('objects', 'a change of files was not recorded in time');
  }

  /**
   * Brings the content of a file to the store. Returns as soon as the next one may come: only once `keep` has returned is it there.
   * @throws UnavailableError (objects), also for a file before
   */
  async write(sha256: string, bytes: Uint8Array): Promise<void> {
    if (this.#written.has(sha256)) return;
    const isFull = this.#underWay.length >= UNDER_WAY || this.#underWayBytes + bytes.length > UNDER_WAY_BYTES;
    if (isFull) await this.#arrived();
    const object = `${this.#name}-${this.#written.size}`;
    this.#written.set(sha256, object);
    const putting = this.#put(object, bytes).then(() => this.#store.written(object, bytes));
    // Who waits for it has the error, and that may be later than it fails.
    putting.catch(() => undefined);
    this.#underWay.push(putting);
    this.#underWayBytes += bytes.length;
    if (this.#underWayBytes > UNDER_WAY_BYTES) await this.#arrived();
  }

  /** Resolves once the store has what is under way. @throws UnavailableError (objects), once none is under way any more */
  async #arrived(): Promise<void> {
    const ends = await Promise.allSettled(this.#underWay);
    const failed = ends.find((end) => end.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    this.#underWay = [];
    this.#underWayBytes = 0;
  }

  async #put(object: string, bytes: Uint8Array): Promise<void> {
    this.#firstMs ??= this.#store.clock();
    await this.#store.write(object, bytes);
    this.storedBytes += bytes.length;
  }

  /** Removes all that it has written: the change was refused, and is not made again. @throws UnavailableError (objects) */
  async discard(): Promise<void> {
    await Promise.allSettled(this.#underWay);
    for (const object of [...this.#written.values(), ...this.#manifests]) await this.#store.remove(object);
  }

  /**
   * Stores the manifest of what the files are now. Returns when the store has it and all that it names: what is recorded can be
   * read. @throws UnavailableError (objects)
   */
  async keep(base: KeptFiles, manifest: WorkspaceManifest): Promise<FilesRef> {
    const objects = new Map(
      manifest.files.map(({ sha256 }) => [sha256, this.#written.get(sha256) ?? base.objectOf(sha256)]),
    );
    const text = JSON.stringify({ ...manifest, objects: manifest.files.map(({ sha256 }) => objects.get(sha256)) });
    const earlier = this.#manifests.length;
    const object = `${this.#name}${MANIFEST}${earlier === 0 ? '' : earlier}`;
    this.#manifests.push(object);
    this.#underWay.push(this.#put(object, Buffer.from(text)));
    await this.#arrived();
    this.#store.kept(object, new KeptFiles(manifest, objects));
    const workspaces = new Set([object, ...objects.values()].map((one) => one.split('/')[0] ?? ''));
    const sizes = { files: manifest.files.length, bytes: bytesOf(manifest) };
    return { manifest: sha256Hex(text), object, workspaces: [...workspaces], ...sizes };
  }
}
