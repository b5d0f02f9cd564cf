import { delay } from '../lib/backoff.ts';
import type { KeyValue } from '../streams/key-value.ts';
import { NODE_PREFIX } from './node-registry.ts';

const POLL_MS = 50;
/** An entry that is not renewed has expired by then. */
const WAIT_MS = 15_000;

/**
 * Names of the nodes that run: of those that are listed, the ones whose entry is renewed while this looks. What a killed
 * one has left expires meanwhile, within 10 s.
 */
export async function runningNodes(leases: KeyValue): Promise<readonly string[]> {
  const listed = new Set<string>();
  const renewed = new Set<string>();
  const done = new AbortController();
  let isWhole = false;
  await leases.watch(
    NODE_PREFIX,
    (change) => {
      const key = change.kind === 'put' ? change.entry.key : change.key;
      if (change.kind === 'removed') listed.delete(key);
      else if (isWhole) renewed.add(key);
      else listed.add(key);
    },
    done.signal,
  );
  isWhole = true;
  const deadline = performance.now() + WAIT_MS;
  while (listed.size > 0 && renewed.size === 0 && performance.now() < deadline) await delay(POLL_MS);
  done.abort();
  return [...(renewed.size > 0 ? renewed : listed)].map((key) => key.slice(NODE_PREFIX.length + 1)).toSorted();
}
