import { describe } from 'vitest';
import { sandboxTurnSuite } from '../conformance/http/sandbox-turns.ts';
import { sandboxSuite } from '../conformance/http/sandboxes.ts';
import { onTwoNodes } from '../support/two-nodes.ts';

describe('sandboxes, two nodes', () => {
  onTwoNodes([sandboxSuite, sandboxTurnSuite]);
});
