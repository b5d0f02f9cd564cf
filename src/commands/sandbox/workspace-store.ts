import { Readable } from 'node:stream';
import { bytesOf, workspaceManifest, EMPTY_MANIFEST } from '../../domain/sandbox/manifest.ts';
import type { WorkspaceManifest } from '../../domain/sandbox/manifest.ts';
import type { FilesRef } from '../../domain/sandbox/events.ts';
import type { ByteRange, ObjectStore } from '../../drivers/objects/port.ts';
import type { ContentStore } from '../../drivers/sandbox/port.ts';
import { sha256Hex } from '../../lib/hash.ts';
import { WeightedLru } from '../../lib/lru.ts';
import { UnavailableError } from '../../lib/unavailable.ts';

/**
 * Owner of the contents of all workspaces of a tenant, and of their manifests, by the hash of what they are: a fork or
 * an export gets its files without copying a byte. What no manifest names is swept (engine/workspace-sweeper.ts).
 */
export const WORKSPACE_OWNER = 'ws';

/** Contents and manifests of workspaces in the object store. */
export class WorkspaceStore {
  readonly #objects: ObjectStore;
  readonly #known: WeightedLru<WorkspaceManifest>;

  constructor(objects: ObjectStore, cacheBytes: number) {
    this.#objects = objects;
    this.#known = new WeightedLru(cacheBytes);
  }

  /** The files that a reference names; null: an empty workspace. @throws UnavailableError (objects) */
  async manifest(tenant: string, ref: FilesRef | null): Promise<WorkspaceManifest> {
    if (ref === null) return EMPTY_MANIFEST;
    const key = `${tenant}/${ref.manifest}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const manifest = workspaceManifest.parse(JSON.parse((await this.bytes(tenant, ref.manifest)).toString()));
    this.#keep(key, manifest);
    return manifest;
  }

  /** Stores a manifest under its hash. Its contents are stored already: what is recorded can be read. */
  async put(tenant: string, manifest: WorkspaceManifest): Promise<FilesRef> {
    const text = JSON.stringify(manifest);
    const name = sha256Hex(text);
    await this.#write(tenant, name, Buffer.from(text));
    this.#keep(`${tenant}/${name}`, manifest);
    return { manifest: name, files: manifest.files.length, bytes: bytesOf(manifest) };
  }

  /** Contents of one tenant, for a call. `written` is how many bytes it has stored. */
  contents(tenant: string): ContentStore & { readonly written: () => number } {
    let written = 0;
    return {
      read: async (sha256) => await this.bytes(tenant, sha256),
      write: async (sha256, bytes) => {
        await this.#write(tenant, sha256, bytes);
        written += bytes.length;
      },
      written: () => written,
    };
  }

  /** @throws UnavailableError (objects), also when what a manifest names is missing: the store has lost data */
  async open(tenant: string, sha256: string, range?: ByteRange): Promise<Readable> {
    const stream = await this.#objects.open({ tenant, owner: WORKSPACE_OWNER, name: sha256 }, range);
    if (stream === null) throw new UnavailableError('objects', 'an object that a workspace names is not there');
    return stream;
  }

  async bytes(tenant: string, sha256: string): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for await (const chunk of await this.open(tenant, sha256)) chunks.push(Buffer.from(chunk));
    return Buffer.concat(chunks);
  }

  /** Rewritten when it already exists: its age starts again, so that no sweep removes what was just named. */
  async #write(tenant: string, name: string, bytes: Uint8Array): Promise<void> {
    const address = { tenant, owner: WORKSPACE_OWNER, name };
    await this.#objects.put(address, Readable.from([bytes]), { declaredBytes: bytes.length });
  }

  #keep(key: string, manifest: WorkspaceManifest): void {
    this.#known.set(key, manifest, 500 + manifest.files.length * 250 + manifest.directories.length * 100);
  }
}
