import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { problem } from '#src/http/wire/schemas.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { podWays } from '../support/pods.ts';
import { seededRandom } from '../support/random.ts';
import { SseReader } from '../support/sse.ts';
import { until } from '../support/wait-until.ts';

const PODS = 20;
/** `POD_RACES=1000` is the long form; on two busy cores it takes minutes. */
const RACES = Math.ceil(Number(process.env['POD_RACES'] ?? 100) / PODS);
/** Two sessions work in every fourth pod. */
const SHARED = 4;
const END_MS = 120_000;

const recorded = z.object({
  type: z.string(),
  turnId: z
    .string()
    .nullish()
    .transform((id) => id ?? null),
  payload: z.looseObject({ state: z.string().optional() }),
});
type Recorded = z.output<typeof recorded>;

/** What a request to stop was told. */
interface Told {
  readonly stopped: number;
  readonly busy: number;
}

describe.runIf(podWays().length > 0)('stopping a pod against turns that start, two nodes', () => {
  const hosts: Host[] = [];
  let nodes: readonly [TenantClient, TenantClient];
  const random = seededRandom('pod races');

  beforeAll(async () => {
    const first = await startHost();
    hosts.push(first);
    const second = await startHost({ join: first });
    hosts.push(second);
    const tenant = await new AdminClient(first).createTenant();
    await tenant.saveAgent('machinist', { sandboxTools: true });
    nodes = [tenant, tenant.at(second)];
  });

  afterAll(async () => {
    for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
  });

  const either = (): TenantClient => (random.int(0, 1) === 0 ? nodes[0] : nodes[1]);
  const call = (name: string, input: object) => [{ toolCalls: [{ name, input }] }, { text: 'done' }];

  /** Whatever runs in the session, the turn comes after it. */
  async function play(id: string, steps: readonly unknown[]): Promise<void> {
    const message = { type: 'message', content: JSON.stringify({ fixture: steps }), whenBusy: 'queue' };
    const answer = await either().command(id, message);
    if (answer.status !== 202) throw new Error(`a message was told ${answer.text}`);
  }

  /** Stops the pod again and again while turns run. @throws when it is told anything but that it did, or that a turn runs */
  async function stopped(pod: string, times: number): Promise<Told> {
    const told = { stopped: 0, busy: 0 };
    for (let n = 0; n < times; n++) {
      const answer = await either().request({ method: 'POST', path: `/v1/sandboxes/${pod}/stop`, body: {} });
      if (answer.status === 200) {
        told.stopped += 1;
        continue;
      }
      const { code, activeTurnId } = problem.parse(answer.json);
      if (code !== 'sandbox_busy' || activeTurnId === undefined) throw new Error(`a stop was told ${answer.text}`);
      told.busy += 1;
    }
    return told;
  }

  /** What a pod records, as it comes. */
  async function watched(pod: string) {
    const [{ credentials, headers }] = nodes;
    const stream = await SseReader.open(credentials.url, `/v1/sandboxes/${pod}/events`, { headers });
    const records = (): Recorded[] =>
      stream.frames
        .filter(({ event }) => event.startsWith('sandbox.'))
        .map(({ data }) => recorded.parse(JSON.parse(data)));
    const calls = async (count: number) =>
      await until(
        `${pod} has recorded ${count} calls`,
        () => stream.frames.filter(({ event }) => event === 'sandbox.exec').length >= count,
        END_MS,
      );
    return { records, calls, close: () => stream.close() };
  }

  /** Of what a pod has recorded: what no order of turns and stops may leave. */
  function faults(records: readonly Recorded[]): string[] {
    const found: string[] = [];
    let [holder, isStopped, hasRun]: [string | null, boolean, boolean] = [null, false, false];
    for (const item of records) {
      const { state } = item.payload;
      if (state === 'running' && item.turnId !== null) {
        // A turn that has ended and not let go of it yet is not waited for.
        if (holder !== null && !hasRun) found.push(`${item.turnId} took it from ${holder}`);
        if (isStopped) found.push(`${item.turnId} has it stopped`);
        [holder, hasRun] = [item.turnId, false];
      } else if (state === 'ready') holder = null;
      else if (state === 'creating') isStopped = false;
      else if (state === 'stopped') {
        if (holder !== null) found.push(`it was stopped under ${holder}`);
        isStopped = true;
      } else if (item.type === 'sandbox.exec') {
        if (holder !== item.turnId)
          found.push(`${String(item.turnId)} ran a call that ${holder ?? 'nobody'} had it for`);
        hasRun = true;
      }
    }
    return found;
  }

  async function raced(n: number): Promise<Told & { readonly problems: readonly string[] }> {
    const pod = `pod-${n}`;
    const [tenant] = nodes;
    await tenant.request({ method: 'PUT', path: `/v1/sandboxes/${pod}`, body: { kind: 'pod' } });
    const sessions = n % SHARED === 0 ? [`one-${n}`, `two-${n}`] : [`one-${n}`];
    for (const id of sessions) await tenant.openSession(id, { agentId: 'machinist', sandbox: { id: pod } });
    const watch = await watched(pod);
    await play(`one-${n}`, call('write', { path: `kept-${n}`, content: 'kept' }));
    await watch.calls(1);
    const told = { stopped: 0, busy: 0 };
    for (let race = 0; race < RACES; race++) {
      const [{ stopped: did, busy }] = await Promise.all([
        stopped(pod, random.int(1, 4)),
        ...sessions.map(async (id) => await play(id, call('glob', { pattern: '*' }))),
      ]);
      await watch.calls(1 + (race + 1) * sessions.length);
      told.stopped += did;
      told.busy += busy;
    }
    await until('the last turn has left it', async () => (await stopped(pod, 1)).stopped === 1, END_MS);
    const isStopped = (): boolean => watch.records().at(-1)?.payload.state === 'stopped';
    await until(`the stream of ${pod} has all of it`, isStopped, END_MS);
    watch.close();
    const problems = faults(watch.records());
    for (const id of sessions) {
      const items = await tenant.items(id);
      const ends = items.filter(({ type }) => type === 'turn.completed').length;
      const globs = items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));
      const wrong = globs.filter((outcome) => !JSON.stringify(outcome).includes('kept'));
      const wanted = RACES + (id.startsWith('one') ? 1 : 0);
      if (ends !== wanted || globs.length !== wanted || wrong.length > 0)
        problems.push(`${id}: ${ends} turns and ${globs.length} calls, wrong ${JSON.stringify(wrong[0])}`);
    }
    return { ...told, problems };
  }

  test(
    'the one that is recorded first wins: a turn is never stopped under its call, and starts what was stopped',
    async () => {
      const all = await Promise.all(Array.from({ length: PODS }, async (_, n) => await raced(n)));
      expect(all.flatMap(({ problems }) => problems)).toEqual([]);
      const sum = (of: keyof Told) => all.reduce((total, one) => total + one[of], 0);
      process.stdout.write(`pod races: ${PODS * RACES}, ${sum('stopped')} stops did, ${sum('busy')} found a turn\n`);
      // Both have won, or nothing has raced.
      expect(Math.min(sum('stopped'), sum('busy'))).toBeGreaterThan(0);
    },
    2 * END_MS,
  );
});
