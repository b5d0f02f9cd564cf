import { afterAll, beforeAll, describe } from 'vitest';
import { claimSuite } from '../conformance/http/claims.ts';
import { inboxSuite } from '../conformance/http/inbox.ts';
import { longResultSuite } from '../conformance/http/long-results.ts';
import { toolSuite } from '../conformance/http/tools.ts';
import { waitSuite } from '../conformance/http/waits.ts';
import type { HttpTarget } from '../conformance/http/target.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';

describe('tools on the durable Host, two nodes on one log', () => {
  let hosts: Host[] = [];
  let target: HttpTarget;

  beforeAll(async () => {
    // Claims that nobody keeps alive are over soon.
    const env = { AGENT_HOST_LEASE_SECONDS: '3' };
    const first = await startHost({ env });
    hosts = [first];
    const second = await startHost({ env, join: first });
    hosts = [first, second];
    target = { adminKey: first.adminKey, nodes: [first, second] };
  });

  afterAll(async () => {
    for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
  });

  for (const suite of [toolSuite, longResultSuite, waitSuite, claimSuite, inboxSuite]) suite(() => target);
});
