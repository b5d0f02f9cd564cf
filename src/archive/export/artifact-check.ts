import { createHash } from 'node:crypto';
import type { Hash } from 'node:crypto';
import { treeDigest } from '../../commands/artifact/export-tree.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { LineOf } from './format.ts';

type Artifact = LineOf<'artifact'>;

interface Expected {
  readonly size: number;
  readonly sha256: string;
}

/** Checks a bundle's artifacts against what its commits say of them, and their bytes against their digests. */
export class ArtifactCheck {
  readonly #report: (what: string) => void;
  /** What `artifact.created` says, by artifact and version. */
  readonly #created = new Map<string, Expected>();
  /** Named by commits and without a line of their own yet. */
  readonly #missing = new Set<string>();
  /** Files whose bytes have to follow, by path; null: of a file artifact. */
  #files = new Map<string | null, Expected>();
  #current: Artifact | null = null;
  #hash: Hash = createHash('sha256');
  #size = 0;
  #path: string | null | undefined = undefined;
  versions = 0;
  /** Versions whose bytes were compared with their digests. */
  withBytes = 0;

  constructor(report: (what: string) => void) {
    this.#report = report;
  }

  event(event: SessionEvent): void {
    if (event.type === 'artifact.created') {
      const { artifactId, version, size, sha256 } = event.data;
      this.#created.set(keyOf({ artifactId, version }), { size, sha256 });
      this.#missing.add(keyOf({ artifactId, version }));
    }
    if (event.type !== 'command.message') return;
    for (const part of event.data.parts ?? []) if (part.type === 'file') this.#missing.add(keyOf(part));
  }

  artifact(line: Artifact, withBytes: boolean): void {
    this.#finish();
    const created = this.#created.get(keyOf(line));
    if (created !== undefined && (created.sha256 !== line.sha256 || created.size !== line.size)) {
      this.#report(`${nameOf(line)} has another digest or size than the commit that created it says`);
    }
    if (!this.#missing.delete(keyOf(line))) this.#report(`${nameOf(line)} is named by no commit, or there twice`);
    this.versions++;
    const hasBytes = withBytes && !line.deleted;
    this.#current = hasBytes ? line : null;
    if (hasBytes) this.withBytes++;
    this.#files = new Map(hasBytes && line.type === 'file' ? [[null, line]] : []);
  }

  tree(line: LineOf<'tree'>): void {
    const artifact = this.#current;
    if (artifact?.type !== 'folder' || keyOf(line) !== keyOf(artifact)) {
      this.#report(`a list of files belongs to no folder`);
      return;
    }
    if (treeDigest(line.files) !== artifact.sha256)
      this.#report(`${nameOf(artifact)} has other files than its digest says`);
    this.#files = new Map(line.files.map((file) => [file.path, file]));
  }

  bytes({ path, data, last, ...of }: LineOf<'bytes'>): void {
    if (
      this.#current === null ||
      keyOf(of) !== keyOf(this.#current) ||
      (this.#path !== undefined && path !== this.#path)
    ) {
      this.#report(`bytes of ${nameOf(of)} are out of place`);
      return;
    }
    const part = Buffer.from(data, 'base64');
    this.#path = path;
    this.#hash.update(part);
    this.#size += part.length;
    if (!last) return;
    const file = this.#files.get(path);
    const digest = this.#hash.digest('hex');
    if (file?.sha256 !== digest || file.size !== this.#size) {
      this.#report(`${nameOf(of)}${path === null ? '' : `, ${path},`} has other bytes than its digest says`);
    }
    this.#files.delete(path);
    [this.#hash, this.#size, this.#path] = [createHash('sha256'), 0, undefined];
  }

  end(): void {
    this.#finish();
    for (const key of this.#missing) this.#report(`${key} is named by a commit and not there`);
  }

  #finish(): void {
    if (this.#current !== null && this.#files.size > 0) this.#report(`bytes of ${nameOf(this.#current)} are missing`);
    this.#current = null;
  }
}

function keyOf({ artifactId, version }: { readonly artifactId: string; readonly version: number }): string {
  return `artifact ${artifactId} version ${version}`;
}

const nameOf = keyOf;
