import { afterAll, beforeAll } from 'vitest';
import type { HttpTarget } from '../conformance/http/target.ts';
import { startHost } from './host.ts';
import type { Host } from './host.ts';

/** Runs suites of the HTTP contract against two nodes on one log, which are there for as long as these tests. */
export function onTwoNodes(
  suites: readonly ((target: () => HttpTarget) => void)[],
  env: () => Readonly<Record<string, string>> = () => ({}),
): void {
  const hosts: Host[] = [];
  let target: HttpTarget;

  beforeAll(async () => {
    const first = await startHost({ env: env() });
    hosts.push(first);
    const second = await startHost({ join: first, env: env() });
    hosts.push(second);
    target = { adminKey: first.adminKey, nodes: [first, second] };
  });

  afterAll(async () => {
    for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
  });

  for (const suite of suites) suite(() => target);
}
