import type { SessionEvent } from '../../domain/session/events.ts';
import { hashOfCommit } from '../../streams/chain.ts';
import { ChainVerifier } from '../../streams/chain-verifier.ts';
import type { Codec } from '../../streams/codec.ts';
import { eventsOf } from '../../streams/commit.ts';
import type { Commit } from '../../streams/commit.ts';
import { subjectOf } from '../../streams/subjects.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import { ArtifactCheck } from './artifact-check.ts';
import { bundleLines, UnreadableBundleError } from './bundle-lines.ts';
import type { NumberedLine } from './bundle-lines.ts';
import { signedText } from './format.ts';
import type { Line, LineOf } from './format.ts';
import { installationOf, isSignedBy } from './signing-key.ts';

/** Event ids that are compared with each other; those of a longer history are compared within their commits only. */
const IDS_MAX = 1_000_000;

export interface CheckOptions {
  readonly codec: Codec;
  readonly schemas: ConstructorParameters<typeof ChainVerifier>[0];
  /** The public key that the reader trusts; null: none is given. */
  readonly key: string | null;
}

/** What a check found in a bundle. */
export interface Checked {
  readonly header: LineOf<'export'> | null;
  readonly problems: readonly string[];
  readonly checked: readonly string[];
  readonly unchecked: readonly string[];
}

/**
 * Checks a bundle with nothing but the file. What is wrong is in `problems`; a truncated or foreign file is one of
 * them. Memory does not grow with the history except for event ids, at most a million, and the artifacts named.
 */
export async function checkBundle(path: string, options: CheckOptions): Promise<Checked> {
  const check = new BundleCheck(options);
  try {
    for await (const line of bundleLines(path)) check.take(line);
    check.end();
  } catch (error) {
    if (!(error instanceof UnreadableBundleError)) throw error;
    check.problems.push(error.message);
  }
  return check.result();
}

/** The order of the lines, as the kinds that may come first in each stretch. */
const ORDER: readonly Line['kind'][][] = [
  ['export'],
  ['chain', 'commit'],
  ['artifact', 'tree', 'bytes'],
  ['end'],
  ['signature'],
];

interface Chain {
  readonly ref: AggregateRef;
  position: number;
  created: Extract<SessionEvent, { type: 'session.created' }>['data'] | null;
  createdPosition: number;
}

class BundleCheck {
  readonly problems: string[] = [];
  readonly #options: CheckOptions;
  readonly #verifier: ChainVerifier;
  readonly #artifacts = new ArtifactCheck((what) => this.problems.push(what));
  readonly #ids = new Set<string>();
  readonly #chains: Chain[] = [];
  #header: LineOf<'export'> | null = null;
  #end: LineOf<'end'> | null = null;
  #signature: LineOf<'signature'> | null = null;
  #stretch = 0;

  constructor(options: CheckOptions) {
    this.#options = options;
    this.#verifier = new ChainVerifier(options.schemas);
  }

  take({ line, number, digestBefore }: NumberedLine): void {
    const stretch = ORDER.findIndex((kinds) => kinds.includes(line.kind));
    const isRepeated = stretch === this.#stretch && ['export', 'end', 'signature'].includes(line.kind) && number > 1;
    if (stretch < this.#stretch || isRepeated || (number === 1) !== (line.kind === 'export')) {
      throw new UnreadableBundleError(`line ${number} (${line.kind}) is out of place`);
    }
    this.#stretch = stretch;
    switch (line.kind) {
      case 'export':
        this.#header = line;
        break;
      case 'chain':
        this.#begin(line);
        break;
      case 'commit':
        this.#commit(line, number);
        break;
      case 'artifact':
        this.#artifacts.artifact(line, this.#header?.withBytes ?? false);
        break;
      case 'tree':
        this.#artifacts.tree(line);
        break;
      case 'bytes':
        this.#artifacts.bytes(line);
        break;
      case 'end':
        this.#end = line;
        break;
      case 'signature':
        this.#signature = line;
        this.#verifySignature(line, digestBefore());
    }
  }

  end(): void {
    if (this.#signature === null) throw new UnreadableBundleError('it breaks off before its signature');
    this.#artifacts.end();
    this.#compareHeads();
    this.#compareOrigin();
  }

  result(): Checked {
    const { commits, events, unchained } = this.#verifier;
    const { versions, withBytes } = this.#artifacts;
    const heads = this.#end?.heads.map(({ subject, rev, hash }) => `${subject} ${rev} ${hash}`) ?? [];
    const { key } = this.#options;
    const isSigned = this.#signature !== null;
    const checked = [
      ...(isSigned ? [`signature: by ${key === null ? 'the key in the file' : 'the key that was given'}`] : []),
      `chain: ${commits - unchained} of ${commits} commits carry the hash of the one before them; newest: ${heads.join(', ')}`,
      `events: ${events} have a known shape, in order, each with an id of its own`,
      `artifacts: ${versions} versions are those that the commits name, ${withBytes} have the bytes of their digest`,
    ];
    const unchecked = [
      ...(key === null
        ? ['whose signature it is: without --key it only proves that nothing was changed since somebody signed']
        : []),
      ...(unchained > 0
        ? [`${unchained} commits from before commits were chained: only the signature speaks for them`]
        : []),
      ...(versions > withBytes ? [`bytes of ${versions - withBytes} versions: they are not in the file`] : []),
      ...(events > IDS_MAX ? [`whether event ids past the first ${IDS_MAX} are there twice in different commits`] : []),
      'whether the log has grown since, and whether what was recorded is true',
    ];
    return { header: this.#header, problems: this.problems, checked, unchecked };
  }

  #begin({ session, subject }: LineOf<'chain'>): void {
    const ref: AggregateRef = { tenant: this.#header?.tenant ?? '', kind: 'session', id: session };
    if (subject !== subjectOf(ref)) this.problems.push(`the chain of ${session} has the subject of another aggregate`);
    if (this.#chains.some((chain) => chain.ref.id === session))
      this.problems.push(`the chain of ${session} is there twice`);
    this.#chains.push({ ref, position: 0, created: null, createdPosition: 0 });
  }

  #commit({ position, text }: LineOf<'commit'>, number: number): void {
    const chain = this.#chains.at(-1);
    if (chain === undefined) throw new UnreadableBundleError(`line ${number} (commit) is out of place`);
    if (position <= chain.position) this.problems.push(`the commit at ${position} of ${chain.ref.id} is out of order`);
    chain.position = position;
    const bytes = Buffer.from(text);
    const commit = this.#decoded(bytes, position);
    if (commit === null) return;
    const stored = { ref: chain.ref, shard: 0, position, hash: hashOfCommit(bytes), commit };
    const found = this.#verifier.take({ kind: 'commit', stored });
    this.problems.push(...found.map((one) => `${one.subject} at ${one.position} (${one.commitId ?? ''}): ${one.what}`));
    for (const event of eventsOf<SessionEvent>(commit)) {
      this.#artifacts.event(event);
      if (event.type === 'session.created') [chain.created, chain.createdPosition] = [event.data, position];
    }
    this.#compareIds(commit, position);
  }

  #decoded(bytes: Uint8Array, position: number): Commit | null {
    try {
      return this.#options.codec.decode(bytes);
    } catch (error) {
      this.problems.push(`the commit at ${position} cannot be read: ${error instanceof Error ? error.message : ''}`);
      return null;
    }
  }

  #compareIds({ commitId, events }: Commit, position: number): void {
    const ids = [commitId, ...events.map(({ id }) => id)];
    const isTwice = new Set(ids).size < ids.length || ids.some((id) => this.#ids.has(id));
    if (isTwice) this.problems.push(`the commit at ${position} has an id that is there twice`);
    if (this.#ids.size < IDS_MAX) for (const id of ids) this.#ids.add(id);
  }

  /** What the exporter says that it wrote. */
  #compareHeads(): void {
    const { commits, events, heads } = this.#verifier;
    const end = this.#end;
    const isWhole =
      end !== null &&
      end.commits === commits &&
      end.events === events &&
      end.artifacts === this.#artifacts.versions &&
      end.heads.length === heads.size &&
      end.heads.every(({ subject, rev, position, hash }) => {
        const head = heads.get(subject);
        return head?.rev === rev && head.position === position && head.hash === hash;
      });
    if (!isWhole) this.problems.push('it does not hold what its last lines say');
  }

  /** A fork says which parts of other sessions come before its own. */
  #compareOrigin(): void {
    const own = this.#chains.at(-1);
    const ancestry = own?.created?.origin?.ancestry ?? [];
    const before = this.#chains.slice(0, -1);
    const isWhole =
      own?.ref.id === this.#header?.session &&
      own?.created !== null &&
      before.length === ancestry.length &&
      ancestry.every(({ sessionId, position, createdPosition }, i) => {
        const chain = before[i];
        return chain?.ref.id === sessionId && chain.position === position && chain.createdPosition === createdPosition;
      });
    if (!isWhole) this.problems.push('it does not hold the histories that the session reads through');
  }

  #verifySignature({ publicKey, signature }: LineOf<'signature'>, digest: string): void {
    if (!isSignedBy(publicKey, signedText(digest), signature)) {
      this.problems.push('the signature is not one of these bytes: the file was changed since it was signed');
    }
    const { key } = this.#options;
    if (key !== null && key !== publicKey)
      this.problems.push('it is signed with another key than the one that was given');
    if (this.#header?.installation !== installationOf(publicKey)) {
      this.problems.push('it names another installation than the one that signed it');
    }
  }
}
