import { afterAll, beforeAll, describe } from 'vitest';
import { adminSuite } from '../conformance/http/admin.ts';
import { agentSuite } from '../conformance/http/agents.ts';
import { budgetSuite } from '../conformance/http/budgets.ts';
import { commandSuite } from '../conformance/http/commands.ts';
import { executorSuite } from '../conformance/http/executors.ts';
import { forkSuite } from '../conformance/http/forks.ts';
import { historySuite } from '../conformance/http/history.ts';
import { issuerSuite } from '../conformance/http/issuers.ts';
import { keySuite } from '../conformance/http/keys.ts';
import { modelSuite } from '../conformance/http/model.ts';
import { nodeSuite } from '../conformance/http/nodes.ts';
import { openSuite } from '../conformance/http/open.ts';
import { outputSuite } from '../conformance/http/outputs.ts';
import { sessionSuite } from '../conformance/http/sessions.ts';
import { streamSuite } from '../conformance/http/streams.ts';
import { tenantSuite } from '../conformance/http/tenant.ts';
import { usageSuite } from '../conformance/http/usage.ts';
import type { HttpTarget } from '../conformance/http/target.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';

describe('the durable Host, two nodes on one log', () => {
  let hosts: Host[] = [];
  let target: HttpTarget;

  beforeAll(async () => {
    const first = await startHost();
    hosts = [first];
    const second = await startHost({ join: first });
    hosts = [first, second];
    target = { adminKey: first.adminKey, nodes: [first, second] };
  });

  afterAll(async () => {
    for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
  });

  for (const suite of [
    openSuite,
    adminSuite,
    keySuite,
    issuerSuite,
    tenantSuite,
    modelSuite,
    outputSuite,
    executorSuite,
    budgetSuite,
    usageSuite,
    agentSuite,
    sessionSuite,
    commandSuite,
    historySuite,
    forkSuite,
    streamSuite,
    nodeSuite,
  ]) {
    suite(() => target);
  }
});
