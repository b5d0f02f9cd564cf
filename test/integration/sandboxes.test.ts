import { describe } from 'vitest';
import { sandboxForkSuite } from '../conformance/http/sandbox-forks.ts';
import { sandboxOutputsSuite } from '../conformance/http/sandbox-outputs.ts';
import { sandboxQuotaSuite } from '../conformance/http/sandbox-quota.ts';
import { sandboxTurnSuite } from '../conformance/http/sandbox-turns.ts';
import { sandboxUsageSuite } from '../conformance/http/sandbox-usage.ts';
import { sandboxSuite } from '../conformance/http/sandboxes.ts';
import { onTwoNodes } from '../support/two-nodes.ts';

describe('sandboxes, two nodes', () => {
  const suites = [
    sandboxSuite,
    sandboxTurnSuite,
    sandboxOutputsSuite,
    sandboxQuotaSuite,
    sandboxUsageSuite,
    sandboxForkSuite,
  ];
  onTwoNodes(suites, () => ({ AGENT_HOST_PODS: 'off' }));
});
