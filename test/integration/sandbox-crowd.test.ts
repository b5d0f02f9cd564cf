import { expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import { crowd } from '../support/crowd.ts';
import { startHost } from '../support/host.ts';

const WITHIN_MS = 120_000;

/** `npm run bench -- sandboxes` has 200 sessions with ten commands each. */
test(
  'sessions with sandboxes of their own, all at once, lose nothing and mix nothing up',
  async () => {
    await using host = await startHost({ env: { AGENT_HOST_PODS: 'off' } });
    const admin = new AdminClient(host);
    const tenants = await Promise.all(Array.from({ length: 4 }, async () => await admin.createTenant()));
    const { problems, durationsMs } = await crowd(tenants, { sessions: 40, commands: 5, withinMs: WITHIN_MS });
    expect(problems).toEqual([]);
    expect(durationsMs).toHaveLength(200);
  },
  2 * WITHIN_MS,
);
