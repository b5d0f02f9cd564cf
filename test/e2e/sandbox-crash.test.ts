import { afterAll, beforeAll, expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

/** Other nodes take a turn over once the lease of its worker has run out. */
const TURN_MS = 90_000;

let survivor: Host;
let tenant: TenantClient;

beforeAll(async () => {
  survivor = await startHost();
  tenant = await new AdminClient(survivor).createTenant();
  await tenant.saveAgent('coder', { sandboxTools: ['bash'] });
});

afterAll(async () => {
  await survivor[Symbol.asyncDispose]();
});

/**
 * The node that runs a command dies: before what the command gave and left is recorded, and right after. Another node
 * makes the call again, or finds what was recorded: its effect on the files is there once.
 */
test.each(['sandbox.executed', 'sandbox.recorded'])('a node dies in the middle of bash, at %s', async (point) => {
  const id = `crash-${point}`;
  const { sandboxId } = await tenant.openSession(id, { agentId: 'coder' });
  const bash = (command: string) => ({ toolCalls: [{ name: 'bash', input: { command } }] });
  const before = await tenant.play(id, [bash('echo before >> log'), { text: 'done' }]);
  expect((await tenant.turnEnd(id, before.turnId, TURN_MS)).type).toBe('turn.completed');
  const victim = await startHost({ join: survivor, env: { AGENT_HOST_FAULT_POINTS: `${point}=kill` } });
  try {
    const { turnId } = await tenant.at(victim).play(id, [bash('echo during >> log; cat log'), { text: 'done' }]);
    await until('the node is dead', () => !isRunning(victim), TURN_MS);
    expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
    const items = (await tenant.items(id)).filter((item) => item.turnId === turnId);
    const outcomes = items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));
    expect(outcomes).toMatchObject([{ kind: 'completed', output: { stdout: 'before\nduring\n', exitCode: 0 } }]);
    expect(items.filter(({ type }) => type === 'effect.uncertain')).toEqual([]);
    const file = await tenant.request({ path: `/v1/sandboxes/${sandboxId ?? ''}/files/log` });
    expect(file.text).toBe('before\nduring\n');
  } finally {
    await victim[Symbol.asyncDispose]();
  }
});
