import { afterAll, beforeAll, describe } from 'vitest';
import { matrixSuite } from '../conformance/http/matrix.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { onMemoryHost } from '../support/memory-target.ts';

/** Thousands of refused credentials of one address: what guessers wait for would be most of the time. */
const ENV = { AGENT_HOST_FAILED_AUTH_PER_SECOND: '100000' };

describe('every route of the durable Host with every credential', () => {
  let host: Host;

  beforeAll(async () => {
    host = await startHost({ env: ENV });
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
  });

  matrixSuite(() => ({ adminKey: host.adminKey, nodes: [host, host] }));
});

describe('every route of the Host in memory with every credential', () => {
  onMemoryHost([matrixSuite], ENV);
});
