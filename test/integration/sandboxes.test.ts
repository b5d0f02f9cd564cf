import { describe } from 'vitest';
import { sandboxForkSuite } from '../conformance/http/sandbox-forks.ts';
import { sandboxOutputsSuite } from '../conformance/http/sandbox-outputs.ts';
import { sandboxTurnSuite } from '../conformance/http/sandbox-turns.ts';
import { sandboxSuite } from '../conformance/http/sandboxes.ts';
import { onTwoNodes } from '../support/two-nodes.ts';

describe('sandboxes, two nodes', () => {
  onTwoNodes([sandboxSuite, sandboxTurnSuite, sandboxOutputsSuite, sandboxForkSuite], () => ({
    AGENT_HOST_PODS: 'off',
  }));
});
