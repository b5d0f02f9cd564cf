import { describe } from 'vitest';
import { adminSuite } from '../conformance/http/admin.ts';
import { agentSuite } from '../conformance/http/agents.ts';
import { budgetSuite } from '../conformance/http/budgets.ts';
import { commandSuite } from '../conformance/http/commands.ts';
import { retrySuite } from '../conformance/http/retries.ts';
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
import { vaultSuite } from '../conformance/http/vaults.ts';
import { onMemoryHost } from '../support/memory-target.ts';

describe('the Host in memory', () => {
  onMemoryHost([
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
    retrySuite,
    historySuite,
    forkSuite,
    vaultSuite,
    streamSuite,
    nodeSuite,
  ]);
});
