import { afterAll, beforeAll, describe } from 'vitest';
import { matrixSuite } from '../conformance/http/matrix.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';

describe('every route with every credential', () => {
  let host: Host;

  beforeAll(async () => {
    // Thousands of refused credentials of one address: what guessers wait for would be most of the time.
    host = await startHost({ env: { AGENT_HOST_FAILED_AUTH_PER_SECOND: '100000' } });
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  matrixSuite(() => ({ adminKey: host.adminKey, nodes: [host, host] }));
});
