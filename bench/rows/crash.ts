import { ms, Sample } from '../figures.ts';
import { atMost, expectStatus } from '../loops.ts';
import type { Row } from '../row.ts';
import { names, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const TURNS = 100;
const ROUNDS = 3;
const STEPS = ['first', 'second', 'third'] as const;
/** How long the model takes for its second answer: the kill falls into this time, and the call is made again after it. */
const THINKING_MS = 400;
const WITHIN_MS = 2_000;
const GIVEN_UP_MS = 60_000;
const call = [{ name: 'x', input: {} }];
const SCRIPT = JSON.stringify({
  fixture: [
    { text: STEPS[0], toolCalls: call },
    { text: STEPS[1], toolCalls: call, delayMs: THINKING_MS },
    { text: STEPS[2] },
  ],
});

/** What a reader on another node has seen of one turn. */
interface Seen {
  readonly steps: string[];
  endedAt: number | null;
  ends: number;
}

/**
 * kill -9 to the only node with an engine, in the middle of 100 turns, and its restart. Readers follow all the sessions
 * on another node, which only reads: what they see of each turn is counted, and when it ends.
 */
export const crash: Row = async ({ stage, scale, report }) => {
  const reader = await stage.host('reads');
  let host = await stage.host('commands,reads,projector,engine');
  const tenant = await Tenant.create(host, stage.adminKey);
  const finished = new Sample();
  const problems: string[] = [];
  let slowest = 0;
  let fewest = TURNS;
  for (let round = 0; round < Math.max(1, ROUNDS * scale); round++) {
    const ids = names(`crash-${round}`, TURNS);
    await tenant.openSessions(host, ids);
    const watch = new Watch(ids);
    const readers = await Promise.all(
      ids.map(async (id) => await tenant.follow(reader, id, (frame) => watch.saw(id, frame))),
    );
    const lines = new Lines(host.address);
    await atMost(TURNS, ids, async (id) => expectStatus(await lines.send(tenant.message(id, SCRIPT)), 202));
    await watch.until((seen) => seen.steps.length >= 1);
    const running = watch.count((seen) => seen.ends === 0);
    await host.kill();
    lines.close();
    const began = performance.now();
    host = await host.again();
    const listeningMs = performance.now() - began;
    await watch.until((seen) => seen.ends > 0);
    const last = Math.max(...watch.each.map((seen) => (seen.endedAt ?? Number.POSITIVE_INFINITY) - began));
    for (const seen of watch.each) finished.add((seen.endedAt ?? Number.POSITIVE_INFINITY) - began);
    slowest = Math.max(slowest, last);
    problems.push(...watch.problems());
    report(`${running} turns running at the kill; listening after ${ms(listeningMs)}, last end after ${ms(last)}`);
    for (const one of readers) one.close();
    fewest = Math.min(fewest, running);
  }
  for (const problem of problems) report(problem);
  return [
    {
      measure: `8 kill -9 in the middle of ${TURNS} running turns: ends after the restart began (a model call takes ${THINKING_MS} ms of it)`,
      subject: `${finished.text}; ${fewest} or more running at the kill, ${problems.length} lost, doubled or out of order`,
      baseline: '',
      ratio: '',
      target: `all < ${WITHIN_MS / 1_000} s, none lost, no step doubled`,
      met: problems.length === 0 && fewest === TURNS && slowest < WITHIN_MS,
      goals: [
        {
          label: `8 kill -9: last of ${TURNS} turns ends`,
          value: slowest,
          target: WITHIN_MS,
          unit: 'ms',
          better: 'less',
        },
      ],
    },
  ];
};

class Watch {
  readonly #seen: ReadonlyMap<string, Seen>;
  #moved = (): void => undefined;

  constructor(ids: readonly string[]) {
    this.#seen = new Map(ids.map((id) => [id, { steps: [], endedAt: null, ends: 0 }]));
  }

  get each(): readonly Seen[] {
    return [...this.#seen.values()];
  }

  saw(id: string, frame: string): void {
    const seen = this.#seen.get(id);
    if (seen === undefined) return;
    if (frame.includes('event: message.assistant')) seen.steps.push(/"text":"(\w+)"/.exec(frame)?.[1] ?? '?');
    if (frame.includes('event: turn.')) {
      seen.ends++;
      seen.endedAt ??= performance.now();
      if (!frame.includes('event: turn.completed')) seen.steps.push(frame);
    }
    this.#moved();
  }

  count(is: (seen: Seen) => boolean): number {
    return this.each.filter(is).length;
  }

  /** Resolves when it is so of every turn. */
  async until(is: (seen: Seen) => boolean): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const late = (): void => reject(new Error(`${this.count((seen) => !is(seen))} turns do not get on`));
      const timer = setTimeout(late, GIVEN_UP_MS);
      this.#moved = (): void => {
        if (!this.each.every(is)) return;
        clearTimeout(timer);
        resolve();
      };
      this.#moved();
    });
  }

  problems(): readonly string[] {
    const right = STEPS.join();
    return [...this.#seen].flatMap(([id, { steps, ends }]) =>
      steps.join() === right && ends === 1 ? [] : [`${id}: ${ends} ends, steps ${steps.join()}`],
    );
  }
}
