import { entryOf, openFile, treeOf } from '../../commands/artifact/read.ts';
import type { FoundVersion } from '../../commands/artifact/read.ts';
import { artifactRef } from '../../commands/artifact/deps.ts';
import type { ArtifactDeps } from '../../commands/artifact/deps.ts';
import type { Repository } from '../../commands/repository.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { SessionState } from '../../domain/session/state.ts';
import type { Clock } from '../../lib/clock.ts';
import { timestamp } from '../../lib/clock.ts';
import { follows, genesisOf, hashOfCommit } from '../../streams/chain.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { Codec } from '../../streams/codec.ts';
import type { EventStore, PlainCommit } from '../../streams/event-store.ts';
import { subjectOf } from '../../streams/subjects.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { StartError } from '../../lib/start-error.ts';
import { FORMAT } from './format.ts';
import type { Line, LineOf } from './format.ts';

export interface BundleDeps extends Pick<ArtifactDeps, 'artifacts' | 'objects'> {
  readonly store: EventStore;
  readonly codec: Codec;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly clock: Clock;
}

export interface BundleOptions {
  readonly ref: AggregateRef;
  readonly installation: string;
  readonly withBytes: boolean;
  /** Called with each commit that was read. */
  readonly onCommit: (at: { readonly position: number; readonly newest: number; readonly events: number }) => void;
}

/** Commits of one read; each may have 8 MiB. */
const PAGE = 50;
/** Bytes that one line holds. */
const CHUNK_BYTES = 49_152;

/** A part of the history: a session from its creation to a commit. */
interface Part {
  readonly ref: AggregateRef;
  readonly created: number;
  readonly upTo: number;
}

/**
 * The lines of an export, without the signature: the commits of the session and of those that it reads through, as they
 * were when this began, and the artifacts that they name. @throws StartError when the session does not exist
 */
export async function* sessionBundle(deps: BundleDeps, options: BundleOptions): AsyncGenerator<Line> {
  const { ref, installation, withBytes } = options;
  const { tenant, id: session } = ref;
  const { state, position } = await deps.sessions.refresh(ref);
  if (state.status === 'absent') throw new StartError(`there is no session ${session} in tenant ${tenant}`);
  const exportedAt = timestamp(deps.clock());
  yield { kind: 'export', format: FORMAT, installation, exportedAt, tenant, session, withBytes };
  const chains: Part[] = (state.origin?.ancestry ?? []).map((ancestor) => ({
    ref: { ...ref, id: ancestor.sessionId },
    created: ancestor.createdPosition,
    upTo: ancestor.position,
  }));
  chains.push({ ref, created: state.createdPosition, upTo: position });
  const named = new NamedArtifacts();
  const end: LineOf<'end'> = { kind: 'end', heads: [], commits: 0, events: 0, artifacts: 0 };
  for (const part of chains) yield* chainLines(deps, part, { ...options, named, end });
  for (const [artifactId, versions] of named.versions) {
    for await (const line of artifactLines(deps, { tenant, artifactId, versions, withBytes })) {
      if (line.kind === 'artifact') end.artifacts++;
      yield line;
    }
  }
  yield end;
}

/** Versions by the id of their artifact, each in the order in which it was named. */
class NamedArtifacts {
  readonly versions = new Map<string, Set<number>>();

  take(event: SessionEvent): void {
    if (event.type === 'artifact.created') this.#add(event.data.artifactId, event.data.version);
    if (event.type !== 'command.message') return;
    for (const part of event.data.parts ?? []) if (part.type === 'file') this.#add(part.artifactId, part.version);
  }

  #add(artifactId: string, version: number): void {
    this.versions.set(artifactId, (this.versions.get(artifactId) ?? new Set()).add(version));
  }
}

async function* chainLines(
  deps: BundleDeps,
  part: Part,
  { named, end, onCommit }: Pick<BundleOptions, 'onCommit'> & { named: NamedArtifacts; end: LineOf<'end'> },
): AsyncGenerator<Line> {
  const { ref, upTo } = part;
  yield { kind: 'chain', session: ref.id, subject: subjectOf(ref) };
  let head = { rev: 0, position: 0, hash: genesisOf(ref) };
  for await (const { position, bytes } of commitsOf(deps, part)) {
    const commit = deps.codec.decode(bytes);
    if (!follows(head, commit)) {
      throw new StartError(
        `commit ${commit.rev} of session ${ref.id} does not follow ${head.rev}: audit verify says more`,
      );
    }
    for (const event of eventsOf<SessionEvent>(commit)) named.take(event);
    head = { rev: commit.rev, position, hash: hashOfCommit(bytes) };
    end.commits++;
    end.events += commit.events.length;
    onCommit({ position, newest: upTo, events: commit.events.length });
    yield { kind: 'commit', position, text: textOf(bytes, position) };
  }
  end.heads.push({ subject: subjectOf(ref), ...head });
}

/** The commits of a session, and before them the deletion of an earlier one with its id: its first commit names that. */
async function* commitsOf({ store }: BundleDeps, { ref, created, upTo }: Part): AsyncGenerator<PlainCommit> {
  let deletion: PlainCommit | null = null;
  for (let [after, more] = [0, true]; more && after < upTo;) {
    const page = await store.readPlain(ref, { after, limit: PAGE, atLeast: upTo });
    for (const commit of page.commits.filter(({ position }) => position <= upTo)) {
      if (commit.position < created) {
        deletion = commit;
        continue;
      }
      if (deletion !== null) yield deletion;
      deletion = null;
      yield commit;
    }
    after = page.commits.at(-1)?.position ?? upTo;
    ({ more } = page);
  }
}

function textOf(bytes: Uint8Array, position: number): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new Error(`the commit at ${position} is not a text`, { cause });
  }
}

async function* artifactLines(
  deps: BundleDeps,
  wanted: { tenant: string; artifactId: string; versions: ReadonlySet<number>; withBytes: boolean },
): AsyncGenerator<Line> {
  const { tenant, artifactId, withBytes } = wanted;
  const { state: artifact } = await deps.artifacts.refresh(artifactRef(tenant, artifactId));
  if (artifact.status === 'absent') throw new Error(`the artifact ${artifactId} is named and has no history`);
  const { name, kind: type } = artifact;
  const deleted = artifact.status === 'removed';
  for (const number of wanted.versions) {
    const version = artifact.versions[number - 1];
    if (version === undefined) throw new Error(`the artifact ${artifactId} has no version ${number}`);
    const { size, sha256, contentType } = version;
    const of = { artifactId, version: number };
    yield { kind: 'artifact', ...of, name, type, size, sha256, contentType, deleted };
    if (!withBytes || deleted) continue;
    const found: FoundVersion = { kind: 'done', tenant, artifact, version };
    const files = await treeOf(deps, found);
    if (type === 'folder') yield { kind: 'tree', ...of, files: files.map(entryOf) };
    for (const file of files) {
      const path = type === 'folder' ? file.path : null;
      for await (const { data, last } of chunks(await openFile(deps, found, file))) {
        yield { kind: 'bytes', ...of, path, data: data.toString('base64'), last };
      }
    }
  }
}

/** The bytes in parts of one size; the last one may be shorter, or empty. */
async function* chunks(source: AsyncIterable<Uint8Array>): AsyncGenerator<{ data: Buffer; last: boolean }> {
  let rest = Buffer.alloc(0);
  for await (const part of source) {
    rest = Buffer.concat([rest, part]);
    for (; rest.length > CHUNK_BYTES; rest = rest.subarray(CHUNK_BYTES)) {
      yield { data: rest.subarray(0, CHUNK_BYTES), last: false };
    }
  }
  yield { data: rest, last: true };
}
