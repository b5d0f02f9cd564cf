import { afterEach, expect, test } from 'vitest';
import { onFaultPoint } from '#src/lib/fault-points.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { Gate, TestModel, TestNodes } from '../support/engine.ts';
import { appendAll, counted, ended, paused, resting, started } from '../support/open-turns.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

/** Half as many again as one value of the key-value store would hold. */
const OPEN = 50_000;
const ROUNDS = 5;
const PER_ROUND = 50;

const servers = useServers();
const nodes = new TestNodes();

afterEach(async () => {
  await nodes.end();
});

const refs = (count: number, name: string): AggregateRef[] =>
  Array.from({ length: count }, (_, n) => ({ tenant: `tn_many_${n % 20}`, kind: 'session', id: `${name}/${n}` }));

async function appendTurns(all: readonly AggregateRef[]): Promise<number[]> {
  const turnId = (n: number): string => `tu_${String(n).padStart(26, '0')}`;
  const events = (n: number) => [started(turnId(n)), resting(turnId(n)), paused(turnId(n))];
  return await appendAll(servers.log, all, { after: () => 0, events });
}

test(
  `${OPEN} open turns: little is written, a new leader reads on, and timers fire`,
  { timeout: 600_000 },
  async () => {
    const { log } = servers;
    await appendTurns(refs(OPEN, 'rest'));
    const model = new TestModel();
    const counter: { bucket?: ReturnType<typeof counted> } = {};
    const counting = (bucket: KeyValue): KeyValue => (counter.bucket = counted(bucket)).bucket;
    const first = nodes.add(log, { model, checkpoints: counting });
    await first.start();
    first.dispatcher.start();
    await until('all are known', () => first.dispatcher.openTurns === OPEN, 240_000);
    const head = async () => {
      const entry = await first.snapshots.get('dispatcher.0.v3');
      return entry === null ? 0 : (JSON.parse(entry.value) as { position: number }).position;
    };
    await until('the checkpoint has come to the end', async () => (await head()) >= OPEN, 120_000);

    const { written } = counter.bucket ?? counted(first.snapshots);
    const whole = written.bytes;
    written.bytes = 0;
    let newest = 0;
    const began = performance.now();
    for (let round = 0; round < ROUNDS; round++) {
      const some = refs(PER_ROUND, `short/${round}`);
      const at = await appendTurns(some);
      const begun = Math.max(...at);
      await until('they are in the checkpoint', async () => (await head()) >= begun);
      const over = await appendAll(log, some, {
        after: (n) => at[n] ?? 0,
        events: (n) => [ended(`tu_${String(n).padStart(26, '0')}`)],
      });
      newest = Math.max(newest, ...over);
      await until('their ends are', async () => (await head()) >= newest);
    }
    const seconds = (performance.now() - began) / 1000;
    process.stdout.write(
      `${OPEN} open turns: ${whole} bytes at first, then ${written.bytes} for ${2 * ROUNDS * PER_ROUND} changes in ${seconds.toFixed(1)} s\n`,
    );
    // All of them would be 12 MB each time.
    expect(written.bytes).toBeLessThan(1_000_000);
    expect(first.dispatcher.openTurns).toBe(OPEN);

    // It dies between the turns and the position that makes them count: it says nothing more until the test is over.
    const died = new Gate();
    const never = new Gate();
    const kill = onFaultPoint('dispatcher.segment-written', async () => {
      died.open();
      await never.opened;
    });
    await appendTurns(refs(5, 'last'));
    await died.opened;
    kill();
    void first.dispatcher.stop();
    await first.leases.remove('dispatcher.0');

    const starts: number[] = [];
    const follow: typeof log.source.follow = (options) => {
      starts.push(options.after);
      return log.source.follow(options);
    };
    const second = nodes.add(log, { model, follow });
    await second.start();
    const tookOver = performance.now();
    second.dispatcher.start();
    await until('the new leader knows them all', () => second.dispatcher.openTurns === OPEN + 5, 120_000);
    process.stdout.write(`a new leader knows ${OPEN} turns after ${Math.round(performance.now() - tookOver)} ms\n`);
    expect(Math.min(...starts)).toBeGreaterThanOrEqual(newest);

    // Timers and turns without a worker among them.
    const timed: AggregateRef = { tenant: 'tn_timer', kind: 'session', id: 'timer' };
    await second.openSession(timed, { maxTurnSeconds: 60 });
    const hook = { at: 'before', scope: 'turn' } as const;
    const waiting: AggregateRef = { tenant: 'tn_timer', kind: 'session', id: 'waiting' };
    await second.openSession(waiting, { maxTurnSeconds: 2 }, { hooks: [hook] });
    await second.message(waiting, 'queue');
    await second.message(timed, 'queue');
    expect((await second.turnEnds(timed)).type).toBe('turn.completed');
    const over = await second.turnEnds(waiting);
    expect(over).toMatchObject({ type: 'turn.failed', data: { error: { code: 'turn_timeout' } } });
  },
);
