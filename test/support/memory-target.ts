import { afterAll, beforeAll } from 'vitest';
import { createMemoryHost } from '#src/in-memory/index.ts';
import type { MemoryHost } from '#src/in-memory/index.ts';
import type { HttpTarget } from '../conformance/http/target.ts';

/** As of a test Host in a process of its own (host.ts). */
const ENV = { AGENT_HOST_EGRESS: 'public,loopback', AGENT_HOST_CACHE_MIB: '64' };

/** It brings a database, which takes seconds on a loaded machine. */
const START_MS = 180_000;

/** Runs suites of the HTTP contract against a Host in memory, which is there for as long as these tests. */
export function onMemoryHost(
  suites: readonly ((target: () => HttpTarget) => void)[],
  env: Readonly<Record<string, string>> = {},
): void {
  let host: MemoryHost;
  let target: HttpTarget;

  beforeAll(async () => {
    host = await createMemoryHost({ env: { ...ENV, ...env } });
    const node = { url: await host.listen() };
    target = { adminKey: host.adminKey, nodes: [node, node] };
  }, START_MS);

  afterAll(async () => {
    await host.close();
  });

  for (const suite of suites) suite(() => target);
}
