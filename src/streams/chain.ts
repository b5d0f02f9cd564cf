import { hash } from 'node:crypto';
import { sha256Hex } from '../lib/hash.ts';
import type { Commit } from './commit.ts';
import { subjectOf } from './subjects.ts';
import type { AggregateRef } from './subjects.ts';

/**
 * The hash of a commit: SHA-256 of its bytes as they were encoded, before they were sealed, in lower-case hex. The next
 * commit of the aggregate carries it as `prev`, so that anyone with the plain commits can check their chain without any
 * key (docs/decisions/0014).
 */
export function hashOfCommit(plain: Uint8Array): string {
  return hash('sha256', plain, 'hex');
}

/** What the first commit of an aggregate carries as `prev`: a chain moved to another subject begins wrong. */
export function genesisOf(ref: AggregateRef): string {
  return sha256Hex(`agent-host genesis ${subjectOf(ref)}`);
}

/** The newest commit that a caller has of an aggregate; `rev` 0 with the genesis as hash: none. */
export interface ChainEnd {
  readonly rev: number;
  readonly hash: string;
}

/**
 * Whether a commit directly follows another. Commits stored before chaining carry no hash, only their number. Nothing
 * precedes the deletion that a history begins with: what did has been erased.
 */
export function follows({ rev, hash: before }: ChainEnd, commit: Commit): boolean {
  if (rev === 0 && commit.events.some(({ type }) => type === 'session.deleted')) return true;
  return commit.rev === rev + 1 && (commit.prev === undefined || commit.prev === before);
}
