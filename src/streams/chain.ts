import { hash } from 'node:crypto';
import { sha256Hex } from '../lib/hash.ts';
import { subjectOf } from './subjects.ts';
import type { AggregateRef } from './subjects.ts';

/**
 * The hash of a commit: SHA-256 of its bytes as they were encoded, before they were sealed, in lower-case hex. The next
 * commit of the aggregate carries it as `prev`, so that whoever has the plain commits can check their chain without any
 * key (docs/decisions/0014).
 */
export function hashOfCommit(plain: Uint8Array): string {
  return hash('sha256', plain, 'hex');
}

/** What the first commit of an aggregate carries as `prev`: a chain that was moved to another subject does not begin right. */
export function genesisOf(ref: AggregateRef): string {
  return sha256Hex(`agent-host genesis ${subjectOf(ref)}`);
}
