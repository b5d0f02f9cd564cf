import { readdirSync, readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { podWays } from '../support/pods.ts';
import { until } from '../support/wait-until.ts';

/** Other nodes take a turn over once the lease of its worker has run out. */
const TURN_MS = 120_000;

/** Whether a process has a text among its arguments. */
function runs(text: string): boolean {
  return readdirSync('/proc').some((name) => {
    try {
      return /^\d+$/.test(name) && readFileSync(`/proc/${name}/cmdline`, 'latin1').includes(text);
    } catch {
      // It has ended meanwhile.
      return false;
    }
  });
}

/**
 * The node that runs a command in a pod dies: before the command begins, after it, and after its end is recorded. It is
 * not made again, because it may have done anything; only a recorded end is taken as it is.
 */
describe.runIf(podWays().length > 0)('a node dies', () => {
  let survivor: Host;
  let tenant: TenantClient;

  beforeAll(async () => {
    survivor = await startHost();
    tenant = await new AdminClient(survivor).createTenant();
    await tenant.saveAgent('machinist', { sandbox: { kind: 'pod' }, sandboxTools: ['bash'] });
  });

  afterAll(async () => {
    await survivor[Symbol.asyncDispose]();
  });

  test.each([
    ['sandbox.begun', 'before\n', 'lost'],
    ['sandbox.executed', 'before\nduring\n', 'lost'],
    ['sandbox.recorded', 'before\nduring\n', 'kept'],
  ])('in the middle of bash in a pod, at %s', async (point, log, outcome) => {
    const id = `crash-${point}`;
    const { sandboxId } = await tenant.openSession(id, { agentId: 'machinist' });
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
      const uncertain = items.flatMap((item) => (item.type === 'effect.uncertain' ? [item.payload] : []));
      const kept = { kind: 'completed', output: { stdout: 'before\nduring\n', exitCode: 0 } };
      expect(outcomes).toMatchObject([outcome === 'kept' ? kept : { kind: 'failed', code: 'sandbox_lost' }]);
      expect(uncertain).toMatchObject(outcome === 'kept' ? [] : [{ kind: 'sandbox', reason: 'lost' }]);
      const file = await tenant.request({ path: `/v1/sandboxes/${sandboxId ?? ''}/files/log` });
      expect(file.text).toBe(log);
    } finally {
      await victim[Symbol.asyncDispose]();
    }
  });

  test('and nothing of its pods runs on', async () => {
    const id = 'killed';
    await tenant.openSession(id, { agentId: 'machinist' });
    const victim = await startHost({ join: survivor });
    try {
      const mark = `pod-${process.pid}-${Date.now()}`;
      const command = `exec -a ${mark} sleep 600`;
      const { turnId } = await tenant
        .at(victim)
        .play(id, [{ toolCalls: [{ name: 'bash', input: { command, timeoutSeconds: 600 } }] }, { text: 'done' }]);
      await until('the command runs', () => runs(mark), TURN_MS);
      await victim.kill();
      await until('nothing of it runs', () => !runs(mark), TURN_MS);
      expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
    } finally {
      await victim[Symbol.asyncDispose]();
    }
  });
});
