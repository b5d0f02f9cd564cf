import { findArtifact, openFile, treeOf, versionOf } from '../commands/artifact/read.ts';
import type { FoundVersion } from '../commands/artifact/read.ts';
import type { CommitMeta } from '../commands/repository.ts';
import { holdBytes } from '../commands/sandbox/account.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import type { WorkspaceWriter } from '../commands/sandbox/workspace-store.ts';
import type { StoredFile } from '../domain/artifact/tree.ts';
import type { FilesRef } from '../domain/sandbox/events.ts';
import { FILE_MODE, fileAt, isFault, withFile } from '../domain/sandbox/manifest.ts';
import type { WorkspaceManifest } from '../domain/sandbox/manifest.ts';
import type { OpenSandbox } from '../domain/sandbox/state.ts';
import type { OpenSession } from '../domain/session/state.ts';
import type { FileRef } from '../domain/turn/conversation.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';

/** Where the files of a message are put, below the workspace. */
const INPUTS = 'inputs';

/** What a turn finds in its sandbox besides what was there. */
export interface Inputs {
  /** The files with those of the message; null: as they were. */
  readonly files: FilesRef | null;
  readonly storedBytes: number;
  /** What they are based on. */
  readonly basis: FilesRef | null;
  /** Which files could not be put there and why, for people; null: none. */
  readonly note: string | null;
  /** Before it is recorded. @throws UnavailableError (objects) when that comes too late */
  readonly checkAge: () => void;
}

/** Files of the message that the turn works on; a turn that continues a failed one finds them where they were. */
export function inputsOf({ conversation }: OpenSession, { retryOf }: ActiveTurn): readonly FileRef[] {
  if (retryOf !== null) return [];
  const asked = conversation.messages.findLast((message) => message.role === 'user' && message.byHost !== true);
  return asked?.role === 'user' ? (asked.files ?? []) : [];
}

/**
 * Stores the files of a message for a sandbox, at `inputs/<name>`, in place of what is there. Nothing names them yet. A file that
 * does not fit is left out; the others are not. @throws UnavailableError (objects)
 */
export async function storeInputs(
  deps: SandboxDeps,
  tenant: string,
  { box, inputs, meta }: { readonly box: OpenSandbox; readonly inputs: readonly FileRef[]; readonly meta: CommitMeta },
): Promise<Inputs> {
  const base = await deps.workspaces.load(tenant, box.files);
  const writer = deps.workspaces.writer(tenant, box.workspace);
  const notes: string[] = [];
  let manifest = base.manifest;
  for (const input of inputs) {
    for (const { found, file, path } of await filesOf(deps, tenant, input)) {
      const next = await withInput(deps, { manifest, writer }, { found, file, path });
      if (typeof next === 'string') notes.push(next);
      else manifest = next;
    }
  }
  const about = { basis: box.files, checkAge: () => writer.checkAge() };
  if (manifest === base.manifest) return { files: null, storedBytes: 0, note: noteOf(notes), ...about };
  const files = await writer.keep(base, manifest);
  const { storedBytes } = writer;
  const { workspace } = box;
  const full = await holdBytes(deps, { tenant, workspace, bytes: box.storedBytes + storedBytes, meta });
  if (full === null) return { files, storedBytes, note: noteOf(notes), ...about };
  await writer.discard();
  return { files: null, storedBytes: 0, note: noteOf([full.message, ...notes]), ...about };
}

/** What people read about files that were left out; null: none were. */
export function noteOf(notes: readonly string[]): string | null {
  return notes.length === 0 ? null : `inputs were left out: ${notes.join('; ')}`.slice(0, 1_000);
}

/** One file of a message's, and where it goes. */
export interface InputFile {
  readonly found: FoundVersion;
  readonly file: StoredFile;
  readonly path: string;
}

/** None when the artifact has been deleted since the message. */
export async function filesOf(
  deps: SandboxDeps,
  tenant: string,
  { artifactId, version }: FileRef,
): Promise<InputFile[]> {
  const found = await findArtifact(deps, { tenant, artifactId, outOfReach: () => null });
  const one = found.kind === 'rejected' ? found : versionOf(found, String(version));
  if (one.kind === 'rejected') return [];
  const { kind, name } = one.artifact;
  const folder = kind === 'folder' ? `${INPUTS}/${name}` : INPUTS;
  return (await treeOf(deps, one)).map((file) => ({ found: one, file, path: `${folder}/${file.path}` }));
}

/** The manifest with the file; a text: why it is without. */
async function withInput(
  deps: SandboxDeps,
  { manifest, writer }: { readonly manifest: WorkspaceManifest; readonly writer: WorkspaceWriter },
  { found, file, path }: InputFile,
): Promise<WorkspaceManifest | string> {
  const { sha256, size } = file;
  if (fileAt(manifest, path)?.sha256 === sha256) return manifest;
  const next = withFile(manifest, { path, sha256, size, mode: FILE_MODE }, deps.workspaceLimits);
  if (isFault(next)) return next.message;
  const chunks: Buffer[] = [];
  for await (const chunk of await openFile(deps, found, file)) chunks.push(Buffer.from(chunk));
  await writer.write(sha256, Buffer.concat(chunks));
  return next;
}
