import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { CommandLoop } from '#src/commands/execute.ts';
import { decideMessage } from '#src/domain/session/decide.ts';
import type { SessionState } from '#src/domain/session/state.ts';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import { newId } from '#src/lib/ids.ts';
import { QueueFullError } from '#src/lib/keyed-queue.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { answered, Gate, TestModel, TestNode, TestNodes, untilAborted } from '../support/engine.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { TestNats } from '../support/nats.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

/** As many commands as may wait for one session, and some more. */
const FLOOD = 520;
const LANE = 500;
/** An append is given up after so long here; each of a lane's commands in turn, were they all tried. */
const APPEND_MS = 300;
/** Were they all tried, the last would be answered after two minutes and a half. */
const ANSWERED_WITHIN_MS = 60_000;

const disposables = new AsyncDisposableStack();
let nats: TestNats;
let proxy: TcpProxy;
let direct: TestLog;
const nodes = new TestNodes();

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  proxy = disposables.use(await TcpProxy.start(nats.port));
  direct = disposables.use(await openLog(nats.url));
});

afterEach(async () => {
  proxy.pass();
  await nodes.end();
});

afterAll(async () => {
  await disposables.disposeAsync();
});

/** Messages of which each that is accepted waits in the session's own queue. */
function flood(
  node: TestNode,
  ref: AggregateRef,
  count: number,
): Promise<Awaited<ReturnType<CommandLoop['execute']>>>[] {
  const decide = (state: SessionState) =>
    decideMessage(
      state,
      { requestId: 'r', subject: null, content: 'Hi', whenBusy: 'queue' },
      { nowMs: Date.now(), jitter: 0, newTurnId: newId('tu'), workerId: null, tenantModel: null },
    );
  return Array.from({ length: count }, async () =>
    node.loop.execute(node.sessions, ref, { actor: 'application:test', causation: 'message', decide }),
  );
}

test('an answer comes while a session has more commands than may wait: it is recorded first, and paid for once', async () => {
  const log = disposables.use(await openLog(nats.urlThrough(proxy.port), { codec: direct.codec }));
  const gate = new Gate();
  const model = new TestModel(async ({ callId }, signal) => {
    await gate.opened;
    // The turns of the messages that were let in need not end here.
    return callId === model.calls[0]?.callId ? answered('paid for') : await untilAborted(signal);
  });
  const node = nodes.add(log, { model, drainMs: 100 });
  await node.start();
  const ref = newRef();
  await node.openSession(ref);
  const turnId = await node.message(ref);
  await until('the call is under way', () => model.calls.length === 1);
  let answers = 0;
  disposables.defer(onFaultPoint('budget.settled', () => void answers++));
  proxy.hold();
  const waiting = Promise.allSettled(flood(node, ref, FLOOD));
  gate.open();
  await until('the answer is about to be recorded', () => answers === 1);
  proxy.pass();
  const outcomes = await waiting;
  const refused = outcomes.filter((outcome) => outcome.status === 'rejected');
  expect(refused.map(({ reason }) => reason as unknown)).toEqual(
    Array.from({ length: FLOOD - LANE }, () => expect.any(QueueFullError) as unknown),
  );
  const observer = new TestNode(direct);
  const ofTurn = async (): Promise<string[]> =>
    (await observer.events(ref)).flatMap(({ type, data }) =>
      'turnId' in data && data.turnId === turnId ? [type] : [],
    );
  await until('the turn has ended', async () => (await ofTurn()).includes('turn.completed'));
  expect(await ofTurn()).toEqual([
    ...['command.message', 'turn.started', 'segment.claimed', 'model.requested'],
    ...['model.completed', 'message.assistant', 'turn.completed'],
  ]);
  const [first] = model.calls;
  expect(model.calls.filter(({ callId }) => callId === first?.callId)).toHaveLength(1);
});

test('the log is away: what has waited too long for others is refused without having been tried', async () => {
  const options = { codec: direct.codec, publishTimeoutMs: 100, appendDeadlineMs: APPEND_MS };
  const log = disposables.use(await openLog(nats.urlThrough(proxy.port), options));
  const node = nodes.add(log);
  const ref = newRef();
  // Not through the log whose appends are given up so soon.
  await new TestNode(direct).openSession(ref);
  await node.sessions.refresh(ref);
  const before = await direct.store.head(ref);
  proxy.dropRequests();
  const began = performance.now();
  const outcomes = await Promise.allSettled(
    flood(node, ref, LANE).map(async (command) => {
      await command.catch((error: unknown) => {
        throw Object.assign(error as Error, { afterMs: performance.now() - began });
      });
    }),
  );
  const errors = outcomes.flatMap((outcome) =>
    outcome.status === 'rejected' ? [outcome.reason as Error & { readonly afterMs: number }] : [],
  );
  expect(errors).toHaveLength(LANE);
  for (const error of errors) expect(error).toMatchObject({ dependency: 'streams' });
  expect(Math.max(...errors.map(({ afterMs }) => afterMs))).toBeLessThan(ANSWERED_WITHIN_MS);
  expect(errors.filter(({ message }) => message.includes('to be tried')).length).toBeGreaterThan(LANE / 2);
  proxy.cutAll();
  proxy.pass();
  // Whoever sends again finds the session as it was, and gets on.
  let sent = 0;
  const [next] = await until('a command is accepted', async () => {
    sent++;
    return await Promise.all(flood(node, ref, 1)).catch(() => undefined);
  });
  expect(next).toMatchObject({ kind: 'done' });
  const { commits } = await direct.store.read(ref, { after: before, limit: 1_000 });
  // None of those that were refused. One that was given up on a slow machine, and is there all the same, was sent.
  expect(commits.length).toBeGreaterThan(0);
  expect(commits.length).toBeLessThanOrEqual(sent);
}, 240_000);
