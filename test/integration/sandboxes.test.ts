import { describe } from 'vitest';
import { sandboxSuite } from '../conformance/http/sandboxes.ts';
import { onTwoNodes } from '../support/two-nodes.ts';

describe('sandboxes, two nodes', () => {
  onTwoNodes([sandboxSuite]);
});
