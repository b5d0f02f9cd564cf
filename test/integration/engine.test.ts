import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { SessionEvent } from '#src/domain/session/events.ts';
import type { CommitSource } from '#src/streams/event-store.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import type { WorkItem, WorkQueue } from '#src/streams/work-queue.ts';
import { newRef } from '../support/commits.ts';
import { answered, Gate, TestModel, TestNodes, untilAborted } from '../support/engine.ts';
import type { NodeOptions, TestNode } from '../support/engine.ts';
import { openLog } from '../support/jetstream.ts';
import type { TestLog } from '../support/jetstream.ts';
import { ERROR } from '../support/logger.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { usage } from '../support/sessions.ts';
import { until } from '../support/wait-until.ts';
import { UnavailableError } from '#src/lib/unavailable.ts';

const disposables = new AsyncDisposableStack();
let nats: TestNats;
let log: TestLog;
const nodes = new TestNodes();

beforeAll(async () => {
  nats = disposables.use(await TestNats.start());
  log = disposables.use(await openLog(nats.url));
});

afterEach(async () => {
  await nodes.end();
});

afterAll(async () => {
  await disposables.disposeAsync();
});

const newNode = (options?: NodeOptions): TestNode => nodes.add(log, options);

async function opened(node: TestNode, limits = {}): Promise<AggregateRef> {
  const ref = newRef();
  await node.openSession(ref, limits);
  return ref;
}

const dataOf = <T extends SessionEvent['type']>(events: readonly SessionEvent[], type: T) =>
  events.flatMap((event) => (event.type === type ? [event.data as Extract<SessionEvent, { type: T }>['data']] : []));

describe('a worker that is taken for dead', () => {
  /** Its turn is taken over by `second` while its call is under way; `answer` lets the call end. */
  async function takenOver(secondModel: TestModel) {
    const answer = new Gate();
    const seen = { shown: 0, written: 0, isToldToStop: false };
    // It does not even notice that it is told to stop: as after a long pause of the whole machine.
    const firstModel = new TestModel(async (_, signal, __, onDelta) => {
      signal.addEventListener('abort', () => (seen.isToldToStop = true));
      const writing = setInterval(() => {
        onDelta({ kind: 'text', text: 'word ' });
        seen.written++;
      }, 5);
      await answer.opened;
      clearInterval(writing);
      return answered('late');
    });
    const [first, second] = [
      newNode({ model: firstModel, onPreview: () => seen.shown++ }),
      newNode({ model: secondModel }),
    ];
    await first.start();
    const ref = await opened(first);
    const turnId = await first.message(ref);
    await until('the call is under way', () => firstModel.calls.length === 1);
    await first.fallSilent();
    const begun = Date.now();
    await second.start();
    second.dispatcher.start();
    await until('the other worker calls', () => secondModel.calls.length === 1);
    const tookMs = Date.now() - begun;
    await until('the log has told the first', () => seen.isToldToStop);
    const { shown, written } = seen;
    expect(shown, 'before another had the turn').toBeGreaterThan(1);
    await until('it has written on', () => seen.written > written + 30);
    expect(seen.shown, 'what a fenced worker is answered is shown to nobody').toBe(shown);
    return { answer, first, second, ref, turnId, firstModel, tookMs };
  }

  test('is replaced soon after its last sign of life; what it answers later is recorded as a duplicate', async () => {
    const done = new Gate();
    const model = new TestModel(async () => {
      await done.opened;
      return answered('from the second');
    });
    const { answer, second, ref, turnId, firstModel, tookMs } = await takenOver(model);
    // Within 10 s on a machine that does nothing else.
    expect(tookMs).toBeLessThan(25_000);
    answer.open();
    const reported = await until('the late answer is reported', async () =>
      dataOf(await second.events(ref), 'model.reported').at(0),
    );
    const lostCall = firstModel.calls[0]?.callId;
    const ms: unknown = expect.any(Number);
    const took = { latencyMs: ms, firstTokenMs: ms };
    expect(reported).toEqual({ turnId, callId: lostCall, usage: usage({ duplicate: true }), ...took });
    done.open();
    expect(await second.turnEnds(ref)).toMatchObject({
      type: 'turn.completed',
      // Both calls are paid for.
      data: { output: 'from the second', usage: { costUsd: 0.5, duplicate: true } },
    });
    expect((await second.types(ref)).slice(1)).toEqual([
      ...['command.message', 'turn.started', 'segment.claimed', 'model.requested'],
      ...['segment.claimed', 'effect.uncertain', 'model.requested', 'model.reported'],
      ...['model.completed', 'message.assistant', 'turn.completed'],
    ]);
    const [uncertain] = dataOf(await second.events(ref), 'effect.uncertain');
    expect(uncertain).toMatchObject({ callId: lostCall, reason: 'lost' });
    expect([firstModel.calls.length, model.calls.length]).toEqual([1, 1]);
  });

  test('and answers after the turn has ended: still a duplicate of the call that was repeated', async () => {
    const { answer, first, second, ref, turnId, firstModel } = await takenOver(new TestModel());
    await second.turnEnds(ref);
    answer.open();
    await until('the fenced worker is done', () => first.worker.active === 0);
    const reported = dataOf(await second.events(ref), 'model.reported');
    const callId = firstModel.calls[0]?.callId;
    const ms: unknown = expect.any(Number);
    const took = { latencyMs: ms, firstTokenMs: ms };
    expect(reported).toEqual([{ turnId, callId, usage: usage({ duplicate: true }), ...took }]);
    expect((await second.types(ref)).filter((type) => type === 'message.assistant')).toHaveLength(1);
  });

  test('but whose turn was cancelled: its answer is paid for, and repeats nothing', async () => {
    const answer = new Gate();
    const model = new TestModel(async () => {
      await answer.opened;
      return answered('too late');
    });
    const node = newNode({ model });
    await node.start();
    const ref = await opened(node);
    await node.message(ref);
    await until('the call is under way', () => model.calls.length === 1);
    await node.cancel(ref);
    answer.open();
    await until('the worker is done', () => node.worker.active === 0);
    const [reported] = dataOf(await node.events(ref), 'model.reported');
    expect(reported?.usage).toEqual(usage({ duplicate: false }));
    expect((await node.types(ref)).slice(-3)).toEqual(['effect.uncertain', 'turn.cancelled', 'model.reported']);
  });
});

/** A queue that gives each item to several workers: what a redelivery at a bad instant does. */
class SharedItems {
  readonly #handlers: ((item: WorkItem) => void)[] = [];
  #taking = false;

  readonly wrap = (queue: WorkQueue): WorkQueue =>
    overriding(queue, {
      take: async (handle, { hasRoom, signal }) => {
        this.#handlers.push(handle);
        if (!this.#taking) {
          this.#taking = true;
          await queue.take((item) => this.#handlers.forEach((each) => each(item)), { hasRoom, signal });
        }
        if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
      },
    });
}

describe('the work queue', () => {
  test('an item that two workers get is claimed by one of them, 30 times', async () => {
    const items = new SharedItems();
    const models = [new TestModel(), new TestModel()];
    const [first, second] = models.map((model) => newNode({ model, work: items.wrap })) as [TestNode, TestNode];
    await Promise.all([first.start(), second.start()]);
    first.dispatcher.start();
    for (let round = 0; round < 30; round++) {
      const ref = await opened(first);
      await first.message(ref, 'queue');
      await first.turnEnds(ref);
      const types = await first.types(ref);
      expect(types.filter((type) => type === 'segment.claimed')).toHaveLength(1);
      expect(types).not.toContain('effect.uncertain');
    }
    expect(models.reduce((sum, { calls }) => sum + calls.length, 0)).toBe(30);
    await until('both are idle', () => first.worker.active + second.worker.active === 0);
  });

  test('a worker holds no more turns than it has places, and none is forgotten', async () => {
    let [now, most] = [0, 0];
    const model = new TestModel(async () => {
      most = Math.max(most, ++now);
      await new Promise<void>((resolve) => setImmediate(resolve));
      now--;
      return answered('done');
    });
    const node = newNode({ model, concurrency: 2 });
    await node.start();
    node.dispatcher.start();
    const refs = await Promise.all(Array.from({ length: 12 }, async () => await opened(node)));
    for (const ref of refs) await node.message(ref);
    for (const ref of refs) expect((await node.turnEnds(ref)).type).toBe('turn.completed');
    expect(most).toBeLessThanOrEqual(2);
    expect(model.calls).toHaveLength(12);
  });
});

describe('the dispatcher', () => {
  test('need not wait for the turns of a worker that another of its node has come after', async () => {
    const [first, second, reader] = [newNode({ nodeId: 'again' }), newNode({ nodeId: 'again' }), newNode()];
    await first.start();
    await reader.liveness.start();
    await first.fallSilent();
    expect(reader.liveness.isReplaced(first.workerId)).toBe(false);
    await second.start();
    await until('the first is known as replaced', () => reader.liveness.isReplaced(first.workerId));
    expect(reader.liveness.isReplaced(second.workerId)).toBe(false);
  });

  /** Remembers where followers began. */
  function watchedSource(): { source: CommitSource; starts: number[] } {
    const starts: number[] = [];
    const { source } = log;
    const follow: CommitSource['follow'] = (options) => {
      starts.push(options.after);
      return source.follow(options);
    };
    const newest: CommitSource['newest'] = async (...args) => await source.newest(...args);
    const timeAfter: CommitSource['timeAfter'] = async (...args) => await source.timeAfter(...args);
    const commitsOf: CommitSource['commitsOf'] = (...args) => source.commitsOf(...args);
    const commitAt: CommitSource['commitAt'] = async (...args) => await source.commitAt(...args);
    return { starts, source: { shards: 1, newest, timeAfter, commitsOf, commitAt, follow } };
  }

  test('that starts again reads on from its checkpoint, and knows the turns that were open there', async () => {
    const first = newNode();
    first.dispatcher.start();
    const refs = await Promise.all(Array.from({ length: 5 }, async () => await opened(first)));
    for (const ref of refs) await first.message(ref, 'queue');
    const head = Math.max(...(await Promise.all(refs.map(async (ref) => await log.store.head(ref)))));
    await until('the checkpoint is there', async () => {
      const entry = await first.snapshots.get('dispatcher.0.v3');
      return entry !== null && (JSON.parse(entry.value) as { position: number }).position >= head;
    });
    expect(first.dispatcher.openTurns).toBe(5);
    await first.dispatcher.stop();
    // The offers of the first one are gone: what its successor does not know of, nobody runs.
    await log.topology.manager.streams.purge('WORK');
    const { source, starts } = watchedSource();
    const second = newNode({ source });
    second.dispatcher.start();
    await second.start();
    for (const ref of refs) expect((await second.turnEnds(ref)).type).toBe('turn.completed');
    expect(starts.every((after) => after >= head)).toBe(true);
    expect(starts.length).toBeGreaterThan(0);
  });

  test('lets go of the turns of a tenant that has been erased, which no commit tells of', async () => {
    const node = newNode();
    node.dispatcher.start();
    const [gone, kept] = [await opened(node), await opened(node)];
    for (const ref of [gone, kept]) await node.message(ref, 'queue');
    const head = Math.max(await log.store.head(gone), await log.store.head(kept));
    await until('both are known', async () => {
      const entry = await node.snapshots.get('dispatcher.0.v3');
      return entry !== null && (JSON.parse(entry.value) as { position: number }).position >= head;
    });
    // Earlier tests may have left some of their own.
    const before = node.dispatcher.openTurns;
    expect(before).toBeGreaterThanOrEqual(2);
    await log.store.erase(gone.tenant, ['session']);
    await until('one is let go', () => node.dispatcher.openTurns === before - 1);
    await node.cancel(kept);
  });

  test('two at once do no harm: every turn runs once', async () => {
    const model = new TestModel();
    const worker = newNode({ model });
    await worker.start();
    // With the same node id each takes the other's lease over: both lead, and fight for the checkpoint.
    const [first, second] = [newNode({ nodeId: 'node' }), newNode({ nodeId: 'node' })];
    await Promise.all([first.liveness.start(), second.liveness.start()]);
    first.dispatcher.start();
    second.dispatcher.start();
    const refs: AggregateRef[] = [];
    for (let round = 0; round < 40; round++) {
      const ref = await opened(first);
      await first.message(ref, 'queue');
      refs.push(ref);
    }
    for (const ref of refs) expect((await worker.turnEnds(ref)).type).toBe('turn.completed');
    for (const ref of refs) {
      expect((await worker.types(ref)).filter((type) => type === 'segment.claimed')).toHaveLength(1);
    }
    expect(model.calls).toHaveLength(40);
  });

  test('whose offer fails goes on: the turn is offered again, and nothing is thrown at the process', async () => {
    let failures = 0;
    const failing = (queue: WorkQueue): WorkQueue =>
      overriding(queue, {
        offer: async (ref) => {
          if (failures++ < 2) throw new UnavailableError('streams', 'the work queue cannot be reached');
          await queue.offer(ref);
        },
      });
    const node = newNode({ work: failing });
    await node.start();
    node.dispatcher.start();
    const ref = await opened(node);
    await node.message(ref, 'queue');
    expect((await node.turnEnds(ref)).type).toBe('turn.completed');
    expect(failures).toBeGreaterThan(2);
  });
});

describe('a model call', () => {
  test('that fails for a moment is tried again, not before the provider allows it', async () => {
    const retryAfterMs = 900;
    const model = new TestModel((_request, _signal, call) => {
      const error = { code: 'overloaded', message: 'Busy.' };
      if (call > 2) return answered('at last');
      return { kind: 'failed', error, retryAfterMs: call === 1 ? retryAfterMs : 0, usage: usage() };
    });
    const node = newNode({ model });
    await node.start();
    const ref = await opened(node);
    await node.message(ref);
    expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.completed', data: { output: 'at last' } });
    const [first, second, third] = model.calls.map(({ atMs }) => atMs) as [number, number, number];
    expect(second - first).toBeGreaterThanOrEqual(retryAfterMs);
    expect(second - first).toBeLessThan(retryAfterMs + 15_000);
    expect(third - second).toBeGreaterThanOrEqual(250);
    expect(new Set(model.calls.map(({ callId }) => callId)).size).toBe(3);
  });

  test('that may have been billed ends the turn after three retries, a terminal failure at once', async () => {
    const error = { code: 'overloaded', message: 'Busy.' };
    for (const [retryAfterMs, calls] of [
      [0, 4],
      [null, 1],
    ] as const) {
      const model = new TestModel(() => ({ kind: 'failed', error, retryAfterMs, mayBeBilled: true, usage: usage() }));
      const node = newNode({ model });
      await node.start();
      const ref = await opened(node);
      await node.message(ref);
      expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.failed', data: { error } });
      expect(model.calls).toHaveLength(calls);
    }
  });

  test('of a driver that throws ends the turn as failed, is logged, and does not hurt the worker', async () => {
    const model = new TestModel((_request, _signal, call) => {
      if (call === 1) throw new TypeError('a bug in the driver');
      return answered('fine');
    });
    const node = newNode({ model });
    await node.start();
    const ref = await opened(node);
    await node.message(ref);
    const end = await node.turnEnds(ref);
    expect(end).toMatchObject({ type: 'turn.failed', data: { error: { code: 'internal_error' } } });
    expect(JSON.stringify(end)).not.toContain('a bug in the driver');
    const logged = node.lines.filter(({ level }) => level >= ERROR);
    expect(logged.map(({ err }) => err?.message)).toEqual(['a bug in the driver']);
    await until('the place is free', () => node.worker.active === 0);
    await node.message(ref);
    expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.completed', data: { output: 'fine' } });
  });

  test('that is cancelled on another node is aborted at once, and the turn stays cancelled', async () => {
    const model = new TestModel(async (_request, signal) => await untilAborted(signal));
    const [first, second] = [newNode({ model }), newNode()];
    await first.start();
    const ref = await opened(first);
    await first.message(ref);
    await until('the call is under way', () => model.calls.length === 1);
    await second.cancel(ref);
    const begun = performance.now();
    await until('the worker is free', () => first.worker.active === 0);
    // Nothing but the cancel would end the call; the rest is for a busy machine.
    expect(performance.now() - begun).toBeLessThan(10_000);
    const types = await until('what it cost is recorded', async () => {
      const seen = await first.types(ref);
      return seen.includes('model.reported') && seen;
    });
    expect(types.slice(-4)).toEqual(['command.cancel', 'effect.uncertain', 'turn.cancelled', 'model.reported']);
  });

  test('that hangs past the deadline of its turn is given up', async () => {
    const model = new TestModel(async (_request, signal) => await untilAborted(signal));
    const node = newNode({ model });
    await node.start();
    const ref = await opened(node, { maxTurnSeconds: 1 });
    await node.message(ref);
    expect(await node.turnEnds(ref)).toMatchObject({ type: 'turn.failed', data: { error: { code: 'turn_timeout' } } });
    await until('the worker is free', () => node.worker.active === 0);
  });
});
