import { describe } from 'vitest';
import { claimSuite } from '../conformance/http/claims.ts';
import { inboxSuite } from '../conformance/http/inbox.ts';
import { longResultSuite } from '../conformance/http/long-results.ts';
import { toolSuite } from '../conformance/http/tools.ts';
import { waitSuite } from '../conformance/http/waits.ts';
import { onMemoryHost } from '../support/memory-target.ts';

describe('tools on the Host in memory', () => {
  // Claims that nobody keeps alive are over soon.
  onMemoryHost([toolSuite, longResultSuite, waitSuite, claimSuite, inboxSuite], { AGENT_HOST_LEASE_SECONDS: '3' });
});
