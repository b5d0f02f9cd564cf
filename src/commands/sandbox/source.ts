import type { Rejection } from '../../domain/kernel/rejection.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { FirstFiles } from '../../domain/sandbox/decide.ts';
import { FILE_MODE, isFault, manifestOf } from '../../domain/sandbox/manifest.ts';
import type { ManifestFault, WorkspaceFile } from '../../domain/sandbox/manifest.ts';
import type { SandboxSpec } from '../../domain/sandbox/spec.ts';
import { findArtifact, openFile, treeOf, versionOf } from '../artifact/read.ts';
import type { ArtifactReach } from '../artifact/deps.ts';
import type { CommitMeta } from '../repository.ts';
import { holdBytes } from './account.ts';
import type { SandboxDeps } from './deps.ts';

interface Source {
  readonly tenant: string;
  readonly source: SandboxSpec['source'];
  readonly reach: ArtifactReach;
  /** Owner of what the sandbox writes. */
  readonly workspace: string;
  /** What that has in the store already. */
  readonly storedBytes: number;
  readonly meta: CommitMeta;
}

/** The files that a sandbox starts with: those of an artifact's version, or none. */
export async function sourceFiles(
  deps: SandboxDeps,
  { tenant, source, reach: outOfReach, workspace, storedBytes: earlier, meta }: Source,
): Promise<({ readonly kind: 'done' } & FirstFiles) | Rejection> {
  if (source === undefined) return { kind: 'done', files: null, storedBytes: 0 };
  const { artifactId, version = 'latest' } = source;
  const found = await findArtifact(deps, { tenant, artifactId, outOfReach });
  const one = found.kind === 'rejected' ? found : versionOf(found, String(version));
  if (one.kind === 'rejected') return one;
  const tree = await treeOf(deps, one);
  const files = tree.map(({ path, sha256, size }): WorkspaceFile => ({ path, sha256, size, mode: FILE_MODE }));
  const manifest = manifestOf(files, [], deps.workspaceLimits);
  if (isFault(manifest)) return faultRefusal(manifest);
  const writer = deps.workspaces.writer(tenant, workspace);
  for (const file of tree) {
    const chunks: Buffer[] = [];
    for await (const chunk of await openFile(deps, one, file)) chunks.push(Buffer.from(chunk));
    await writer.write(file.sha256, Buffer.concat(chunks));
  }
  const kept = await writer.keep(await deps.workspaces.load(tenant, null), manifest);
  const { storedBytes } = writer;
  const full = await holdBytes(deps, { tenant, workspace, bytes: earlier + storedBytes, meta });
  if (full === null) return { kind: 'done', files: kept, storedBytes };
  await writer.discard();
  return full;
}

/** What is wrong with the files of a request. */
export function faultRefusal({ code, message }: ManifestFault): Rejection {
  const text = `${message.charAt(0).toUpperCase()}${message.slice(1)}.`;
  if (code === 'limit_exceeded') return reject('limit_exceeded', text, { details: { limit: 'workspace' } });
  return reject('invalid_request', text, { details: { issues: [{ path: 'path', message }] } });
}
