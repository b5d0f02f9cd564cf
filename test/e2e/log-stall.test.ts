import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { done, ExecutorClient, registerExecutor } from '../support/executor.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

/** Longer than an append is tried: what is sent at its beginning is answered 503 while it lasts. */
const STALL_MS = 17_000;
/** Whoever forgets a turn leaves it until its deadline, which is half an hour: so there is time for a busy machine. */
const GOES_ON_WITHIN_MS = 60_000;
const MESSAGES = 10;
const OTHERS = 4;
const numbers = [...Array.from({ length: OTHERS }).keys()];
/** Long enough to send a result in on a busy machine. */
const ENV = { AGENT_HOST_LEASE_SECONDS: '20' };
/** Without requests a server also refuses whoever connects, for it hears of no credentials. */
const LOSSES = [
  { lost: 'replies', count: 1 },
  { lost: 'replies', count: 2 },
  { lost: 'requests', count: 1 },
] as const;
const UNCERTAIN_MS = 120_000;
const KNOWN_MS = 60_000;

/** A command whose turn goes on with a model call, on a session that is ready for it. */
interface Wanted {
  readonly id: string;
  readonly client: TenantClient;
  readonly members: Record<string, unknown>;
}

const tool = (name: string, more: object = {}) => ({ name, inputSchema: { type: 'object' }, ...more });
const calling = (name: string) => [{ toolCalls: [{ name, input: {} }] }, { text: 'went on' }];

/** Sessions of every kind of command that takes a turn on, each on the next of the nodes. */
async function prepare(tenant: TenantClient, nodes: readonly Host[]): Promise<Wanted[]> {
  await tenant.saveAgent('agent', {
    tools: [tool('work'), tool('pay', { approval: 'always' })],
  });
  const executor = new ExecutorClient(tenant, await registerExecutor(tenant));
  const wanted: Wanted[] = [];
  const add = (id: string, members: Record<string, unknown>, as: TenantClient = tenant): void => {
    const node = nodes[wanted.length % nodes.length];
    if (node !== undefined) wanted.push({ id, client: as.at(node), members });
  };
  for (const n of numbers) {
    await tenant.openSession(`respond/${n}`);
    await tenant.play(`respond/${n}`, calling('work'));
    const { actionId } = await offered(executor, `respond/${n}`);
    await executor.claim(actionId);
  }
  for (const n of numbers) {
    const id = `respond/${n}`;
    const isUncertain = async () => {
      const session = await tenant.session(id);
      return session.status === 'uncertain' && session;
    };
    const { waits } = await until('nobody knows what became of it', isUncertain, UNCERTAIN_MS);
    add(id, { type: 'respond', interactionId: waits[0]?.id, value: { resolution: 'fail' } });
  }
  for (const n of numbers) {
    const id = `approve/${n}`;
    await tenant.openSession(id);
    await tenant.play(id, calling('pay'));
    const { waits } = await until('it waits for a person', async () => {
      const session = await tenant.session(id);
      return session.status === 'paused' && session;
    });
    add(id, { type: 'approve', interactionId: waits[0]?.id, approved: false });
  }
  for (let n = 0; n < MESSAGES; n++) {
    await tenant.openSession(`message/${n}`);
    add(`message/${n}`, { type: 'message', content: 'Go on.' });
  }
  for (const n of numbers) {
    await tenant.openSession(`result/${n}`);
    await tenant.play(`result/${n}`, calling('work'));
  }
  const actions = await Promise.all(numbers.map(async (n) => await offered(executor, `result/${n}`)));
  // So that no node has to ask the log before it can decide.
  const knowAll = async (some: readonly Wanted[]) =>
    await Promise.all(some.map(async ({ id, client }) => await knows(tenant.at(client.credentials), id)));
  await knowAll(wanted);
  const count = wanted.length;
  // Last, for a claim is good for some seconds only.
  for (const { id, members } of await Promise.all(actions.map(async (action) => await claimed(executor, action)))) {
    add(id, members, executor.tenant);
  }
  await knowAll(wanted.slice(count));
  return wanted;
}

/** An action that has been done, and the result that says so. */
async function claimed(
  executor: ExecutorClient,
  { actionId, sessionId: id }: { readonly actionId: string; readonly sessionId: string },
): Promise<Omit<Wanted, 'client'>> {
  const { claimId, generation } = (await executor.claim(actionId)).json as { claimId: string; generation: number };
  return { id, members: { type: 'action_result', actionId, claimId, generation, outcome: done('worked') } };
}

async function knows(client: TenantClient, id: string): Promise<void> {
  const look = { type: 'approve', interactionId: 'in_00000000000000000000000000', approved: false };
  await until('the node has the session', async () => (await client.command(id, look)).status === 409, KNOWN_MS);
}

async function offered(
  executor: ExecutorClient,
  sessionId: string,
): Promise<{ readonly actionId: string; readonly sessionId: string }> {
  return await until('the action is offered', async () =>
    (await executor.list()).find((action) => action.sessionId === sessionId),
  );
}

/** Two of each four commands are sent until they are accepted, the others once. */
const isSentAgain = (n: number): boolean => n % 4 > 1;

/** Sends the commands into the stall, some of them again and again with the same key. */
async function sendInto(wanted: readonly Wanted[]): Promise<number[]> {
  return await Promise.all(
    wanted.map(async ({ id, client, members }, n) => {
      const key = { requestId: 'r', idempotencyKey: randomUUID() };
      // On a busy machine it may be so late that the client does not wait for it.
      const first = await client.command(id, members, key).catch(() => ({ status: 0 }));
      if (isSentAgain(n)) {
        const again = async () => (await client.command(id, members, key).catch(() => null))?.status === 202;
        await until('the same command again is accepted', again, STALL_MS + GOES_ON_WITHIN_MS);
      }
      return first.status;
    }),
  );
}

function isRecorded(items: readonly EventRecord[], { type }: Record<string, unknown>): boolean {
  const record = type === 'action_result' ? 'action.completed' : `command.${String(type)}`;
  return items.some((item) => item.type === record);
}

/**
 * However often a command was sent, there is one of it, and one end; what was accepted is there. Returns how many commands
 * are.
 */
async function check(tenant: TenantClient, wanted: readonly Wanted[]): Promise<number> {
  let recorded = 0;
  for (const [n, { id, members }] of wanted.entries()) {
    const items = await tenant.items(id);
    if (!isRecorded(items, members) && !isSentAgain(n)) continue;
    recorded++;
    const count = (type: string): number => items.filter((item) => item.type === type).length;
    expect([count('command.message'), count('turn.completed')], id).toEqual([1, 1]);
    expect(count('command.approve') + count('command.respond'), id).toBeLessThanOrEqual(1);
  }
  return recorded;
}

async function stalled(
  { tenant, nodes }: { readonly tenant: TenantClient; readonly nodes: readonly Host[] },
  log: { readonly stall: () => void; readonly back: () => void },
): Promise<{ readonly answers: readonly number[]; readonly recorded: number }> {
  const wanted = await prepare(tenant, nodes);
  log.stall();
  const statuses = sendInto(wanted);
  // Whatever fails first is the failure of the test.
  statuses.catch(() => undefined);
  await pause(STALL_MS);
  log.back();
  const answers = await statuses;
  for (const { id, members } of wanted) {
    const hasEnded = async (): Promise<boolean> => {
      const items = await tenant.items(id).catch(() => null);
      if (items === null) return false;
      // One that was lost on its way, and that nobody sent again, is no turn that waits.
      return !isRecorded(items, members) || items.some(({ type }) => type === 'turn.completed');
    };
    await until(`the turn of ${id} has gone on to its end`, hasEnded, GOES_ON_WITHIN_MS);
  }
  return { answers, recorded: await check(tenant, wanted) };
}

describe('a turn goes on whose command nobody could confirm', () => {
  for (const count of [1, 2]) {
    test(`the log stands still, ${count} node${count === 1 ? '' : 's'}`, async () => {
      await using first = await startHost({ env: ENV });
      await using second = count === 2 ? await startHost({ join: first, env: ENV }) : null;
      const tenant = await new AdminClient(first).createTenant();
      const pid = Number(await first.file('nats/nats-server.pid'));
      const nodes = second === null ? [first] : [first, second];
      const back = () => process.kill(pid, 'SIGCONT');
      // Whether the server still reads what it was sent before its clients gave their connections up is its own affair.
      const { answers } = await stalled({ tenant, nodes }, { stall: () => process.kill(pid, 'SIGSTOP'), back });
      expect(answers).toContain(503);
    });
  }

  for (const { lost, count } of LOSSES) {
    test(`what the log ${lost === 'replies' ? 'answers' : 'is sent'} is lost, ${count} of 2 nodes run turns`, async () => {
      const roles = count === 1 ? { AGENT_HOST_ROLES: 'commands,reads,projector' } : {};
      await using whole = await startHost({ env: { ...ENV, ...roles } });
      const natsUrl = new URL(await whole.file('nats-url'));
      await using proxy = await TcpProxy.start(Number(natsUrl.port));
      natsUrl.port = String(proxy.port);
      await using cut = await startHost({ join: whole, env: { ...ENV, NATS_URL: natsUrl.href } });
      const tenant = await new AdminClient(whole).createTenant();
      const stall = (): void => {
        if (lost === 'replies') proxy.dropReplies();
        else proxy.dropRequests();
      };
      const back = (): void => {
        proxy.pass();
        proxy.cutAll();
      };
      const nodes = count === 1 ? [cut] : [cut, whole];
      const { answers, recorded } = await stalled({ tenant, nodes }, { stall, back });
      expect(answers).toContain(503);
      const sentAgain = answers.filter((_, n) => isSentAgain(n)).length;
      expect(recorded).toBeGreaterThanOrEqual(lost === 'replies' ? answers.length / 2 : sentAgain);
    });
  }
});
