import { afterAll, beforeAll, expect, test } from 'vitest';
import { sandboxList } from '#src/http/wire/sandboxes.ts';
import { session } from '#src/http/wire/schemas.ts';
import { ArtifactClient } from '../support/artifacts.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

/** Other nodes take a turn over once the lease of its worker has run out. */
const TURN_MS = 120_000;

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

/**
 * The node that exports what a turn has left dies: before the version is recorded, before the session hears of it, and
 * before the turn does. There is one version, the history names it once, and it counts once.
 */
test.each(['outputs.stored', 'outputs.recorded', 'outputs.exported'])('a node dies at %s', async (point) => {
  const id = `crash-${point}`;
  const files = new ArtifactClient(tenant);
  await tenant.openSession(id, { agentId: 'coder' });
  const before = await files.bytes();
  const victim = await startHost({ join: survivor, env: { AGENT_HOST_FAULT_POINTS: `${point}=kill` } });
  try {
    const command = 'mkdir outputs; echo result > outputs/f';
    const steps = [{ toolCalls: [{ name: 'bash', input: { command } }] }, { text: 'done' }];
    const { turnId } = await tenant.at(victim).play(id, steps);
    await until('the node is dead', () => !isRunning(victim), TURN_MS);
    expect((await tenant.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.completed');
    expect(await files.told(id)).toEqual(['artifact.created outputs 1']);
    const types = (await tenant.items(id)).map(({ type }) => type);
    expect(types.slice(-2)).toEqual(['artifact.created', 'turn.completed']);
    const [outputs] = await files.list(`?sessionId=${id}`);
    expect(outputs).toMatchObject({ latestVersion: 1 });
    const path = `/v1/artifacts/${outputs?.artifactId ?? ''}/versions/1/files/f`;
    expect((await tenant.request({ path })).text).toBe('result\n');
    expect(await files.bytes()).toBe(before + 7);
  } finally {
    await victim[Symbol.asyncDispose]();
  }
});

/** The node that forks dies once the fork is promised: whoever asks again gets it, with the files, and with one sandbox. */
test('a node dies in the middle of a fork', async () => {
  await tenant.openSession('forked', { agentId: 'coder' });
  const steps = [{ toolCalls: [{ name: 'bash', input: { command: 'echo inherited > f' } }] }, { text: 'done' }];
  const { turnId } = await tenant.play('forked', steps);
  expect((await tenant.turnEnd('forked', turnId, TURN_MS)).type).toBe('turn.completed');
  const body = { requestId: 'r', idempotencyKey: 'fork', id: 'fork' };
  const ask = { method: 'POST', path: '/v1/sessions/forked/fork', body };
  const victim = await startHost({ join: survivor, env: { AGENT_HOST_FAULT_POINTS: 'session.forked=kill' } });
  try {
    await tenant
      .at(victim)
      .request(ask)
      .catch(() => undefined);
    await until('the node is dead', () => !isRunning(victim), TURN_MS);
    const { sandboxId } = session.parse((await tenant.request(ask)).json);
    const file = await tenant.request({ path: `/v1/sandboxes/${sandboxId ?? ''}/files/f` });
    expect(file.text).toBe('inherited\n');
    const { sandboxes } = sandboxList.parse((await tenant.request({ path: '/v1/sandboxes' })).json);
    expect(sandboxes.filter(({ sessions }) => sessions.some(({ id }) => id === 'fork'))).toHaveLength(1);
  } finally {
    await victim[Symbol.asyncDispose]();
  }
});
