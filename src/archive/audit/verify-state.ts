import { rm } from 'node:fs/promises';
import { z } from 'zod';
import { ChainVerifier } from '../../streams/chain-verifier.ts';
import type { ChainHead, ChainProblem } from '../../streams/chain-verifier.ts';
import { commitPlace } from '../../streams/event-store.ts';
import type { FollowedCommit } from '../../streams/event-store.ts';
import { readIfPresent, writeAtomically } from '../../lib/files.ts';
import { StartError } from '../../lib/start-error.ts';

const FORMAT = 'agent-host audit verify 1';

const problem = z.strictObject({
  subject: z.string(),
  position: z.int(),
  commitId: z.string().nullable(),
  what: z.string(),
});
const head = z.strictObject({
  rev: z.int(),
  hash: z.string(),
  position: z.int(),
  commitId: z.string(),
  chained: z.boolean(),
  unreadable: z.int(),
  since: z.int(),
});
const saved = z.strictObject({
  format: z.literal(FORMAT),
  positions: z.array(z.int()),
  counts: z.strictObject({ commits: z.int(), events: z.int(), erased: z.int(), unchained: z.int() }),
  problems: z.array(problem),
  heads: z.array(z.tuple([z.string(), head])),
});

type Schemas = ConstructorParameters<typeof ChainVerifier>[0];

/** How far a verification has come; with a file, it outlives the process. Anyone who can change the file can hide a problem. */
export class VerifyState {
  readonly verifier: ChainVerifier;
  readonly problems: ChainProblem[];
  readonly #positions: number[];
  readonly #file: string | null;

  /** Private: `load` makes one. */
  constructor(options: {
    readonly file: string | null;
    readonly verifier: ChainVerifier;
    readonly problems: readonly ChainProblem[];
    readonly positions: readonly number[];
  }) {
    this.verifier = options.verifier;
    this.problems = [...options.problems];
    this.#positions = [...options.positions];
    this.#file = options.file;
  }

  /** What the file holds, or the beginning without one. @throws StartError when it is something else */
  static async load(
    file: string | null,
    { schemas, shards }: { readonly schemas: Schemas; readonly shards: number },
  ): Promise<VerifyState> {
    const text = file === null ? undefined : await readIfPresent(file);
    if (text === undefined) {
      const positions = Array.from({ length: shards }, () => 0);
      return new VerifyState({ file, verifier: new ChainVerifier(schemas), problems: [], positions });
    }
    const { heads, counts, problems, positions } = parsed(file ?? '', text);
    if (positions.length !== shards) throw new StartError(`${file ?? ''} is of an installation with other streams`);
    const verifier = Object.assign(new ChainVerifier(schemas, heads), counts);
    return new VerifyState({ file, verifier, problems, positions });
  }

  /** Of the newest message that was taken. */
  positionOf(shard: number): number {
    return this.#positions[shard] ?? 0;
  }

  take(shard: number, followed: FollowedCommit): void {
    this.problems.push(...this.verifier.take(followed));
    this.#positions[shard] = commitPlace(followed).position;
  }

  async save(): Promise<void> {
    if (this.#file === null) return;
    const { commits, events, erased, unchained, heads } = this.verifier;
    const state: z.infer<typeof saved> = {
      format: FORMAT,
      positions: this.#positions,
      counts: { commits, events, erased, unchained },
      problems: this.problems,
      heads: [...heads] as [string, ChainHead][],
    };
    await writeAtomically(this.#file, JSON.stringify(state), 0o600);
  }

  async remove(): Promise<void> {
    if (this.#file !== null) await rm(this.#file, { force: true });
  }
}

function parsed(file: string, text: string): z.infer<typeof saved> {
  try {
    return saved.parse(JSON.parse(text));
  } catch (cause) {
    throw new StartError(`${file} is not a state of audit verify; name another file, or remove it`, { cause });
  }
}
