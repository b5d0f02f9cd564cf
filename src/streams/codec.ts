import type { Commit, CommitEvent } from './commit.ts';

/**
 * Takes the data of one event from version `n` to version `n + 1`. Published events never change shape; a reader sees
 * only the newest one.
 */
export type Upcaster = (data: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>;

/** Upcasters of an event type, by the version that they start from. The newest version is one more than the highest. */
export type UpcasterTable = Readonly<Record<string, Readonly<Record<number, Upcaster>>>>;

/** The log holds a commit that this version cannot read. Final: reading it again will not help. */
export class UndecodableCommitError extends Error {}

export interface Codec {
  /** The version that a new event of the type is written with. */
  readonly versionOf: (type: string) => number;
  readonly encode: (commit: Commit) => Uint8Array;
  /** @throws UndecodableCommitError for another envelope, broken JSON, or an event newer than this program */
  readonly decode: (bytes: Uint8Array) => Commit;
}

const decoder = new TextDecoder();

export function createCodec(upcasters: UpcasterTable): Codec {
  const newest = new Map(
    Object.entries(upcasters).map(([type, steps]) => [type, Math.max(0, ...Object.keys(steps).map(Number)) + 1]),
  );
  const versionOf = (type: string): number => newest.get(type) ?? 1;

  const upcast = (event: CommitEvent): CommitEvent => {
    const target = versionOf(event.type);
    if (event.v === target) return event;
    if (event.v > target) {
      throw new UndecodableCommitError(
        `event ${event.type} has version ${event.v}, this program knows up to ${target}`,
      );
    }
    let { data } = event;
    for (let v = event.v; v < target; v++) {
      const step = upcasters[event.type]?.[v];
      if (step === undefined) throw new UndecodableCommitError(`event ${event.type} has no upcaster from version ${v}`);
      data = step(data);
    }
    return { ...event, v: target, data };
  };

  return {
    versionOf,
    // A TextEncoder takes eight times as long for a commit of 860 bytes.
    encode: (commit) => Buffer.from(JSON.stringify(commit)),
    decode: (bytes) => {
      const commit = parse(bytes);
      if (commit.v !== 1) throw new UndecodableCommitError(`commit envelope of version ${String(commit.v)}`);
      return commit.events.some((event) => event.v !== versionOf(event.type))
        ? { ...commit, events: commit.events.map(upcast) }
        : commit;
    },
  };
}

function parse(bytes: Uint8Array): Commit {
  try {
    // What is read was written by `encode` after the events had passed their schemas; checking again costs every reader.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    return JSON.parse(decoder.decode(bytes)) as Commit;
  } catch (cause) {
    throw new UndecodableCommitError('a commit is not valid JSON', { cause });
  }
}
