import { describe } from 'vitest';
import { podSuite } from '../conformance/http/pods.ts';
import { podWays } from '../support/pods.ts';
import { onTwoNodes } from '../support/two-nodes.ts';

describe.runIf(podWays().length > 0)('pods, two nodes', () => {
  onTwoNodes([podSuite], () => ({ AGENT_HOST_POD_SWEEP_SECONDS: '1' }));
});
