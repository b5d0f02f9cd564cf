import { streamName } from '#src/streams/subjects.ts';
import { ms, Sample } from '../figures.ts';
import { followProjections } from '../projections.ts';
import type { Row } from '../row.ts';
import { LOG_SHARDS } from '../stage.ts';
import { names, Tenant } from '../tenant.ts';
import { cpuEach, describe, usesOf, SESSIONS_EACH, Slots, THREE_STEPS, total, windowOf } from '../turns.ts';
import type { Window } from '../turns.ts';
import { Lines } from '../wire.ts';
import type { Line } from '../wire.ts';

const IN_FLIGHT = 64;
const ROUNDS = 3;
const WINDOW_MS = 5_000;
const RATIO_MIN = 0.7;

interface Load {
  readonly slots: Slots;
  readonly windows: Window[];
  latency: Sample;
}

/** Three-step turns of a tenant whose model calls are checked against a budget, held against one's without any. */
export const budgetedTurns: Row = async ({ stage, scale, report }) => {
  const host = await stage.host('commands,reads,projector,engine');
  const ids = names('turns', IN_FLIGHT * SESSIONS_EACH);
  const load = async (budgets: readonly object[]): Promise<Load> => {
    const tenant = await Tenant.create(host, stage.adminKey);
    if (budgets.length > 0) await tenant.saveBudgets(host, budgets);
    await tenant.openSessions(host, ids);
    return { slots: await Slots.open({ tenant, host, ids }), windows: [], latency: new Sample() };
  };
  const budgeted = await load([{ id: 'all', scope: 'tenant', period: 'total', limitTokens: 1_000_000_000 }]);
  const free = await load([]);
  const progress = followProjections(stage);
  const connections = new Lines(host.address);
  const lines: readonly Line[] = await connections.open(IN_FLIGHT);
  const appends = async (): Promise<number> => {
    let last = 0;
    for (let shard = 0; shard < LOG_SHARDS; shard++)
      last += (await stage.manager.streams.info(streamName(shard))).state.last_seq;
    return last;
  };
  const appended = new Map<Load, number>();
  for (let round = 0; round <= ROUNDS; round++) {
    for (const one of [budgeted, free]) {
      // The first round warms both up.
      if (round === 1) one.latency = new Sample();
      const forMs = WINDOW_MS * scale * (round === 0 ? 0.5 : 1);
      const before = await appends();
      const window = await windowOf({ forMs, uses: usesOf(stage, host) }, async (until) => {
        const turns = await one.slots.run(lines, { script: THREE_STEPS, until, latency: one.latency });
        await progress.caughtUp();
        return turns;
      });
      report(`${one === budgeted ? 'budget' : 'none'}: ${describe(window)}`);
      if (round === 0) continue;
      one.windows.push(window);
      appended.set(one, (appended.get(one) ?? 0) + (await appends()) - before);
    }
  }
  progress.stop();
  connections.close();
  for (const { slots } of [budgeted, free]) slots.close();
  const [ours, theirs] = [total(budgeted.windows), total(free.windows)];
  const ratio = ours.turns / ours.elapsedMs / (theirs.turns / theirs.elapsedMs);
  const each = (one: Load, { turns }: Window): string =>
    `${((appended.get(one) ?? 0) / turns).toFixed(1)} appends a turn`;
  return [
    {
      measure: `budgets, three-step turns/s, ${IN_FLIGHT} in flight (bare: the same without a budget)`,
      subject: `${describe(ours)}, ${each(budgeted, ours)}; turn ${budgeted.latency.text}`,
      baseline: `${describe(theirs)}, ${each(free, theirs)}; turn p50 ${ms(free.latency.at(0.5))}`,
      ratio: `${ratio.toFixed(2)}, CPU ${(cpuEach(ours) / cpuEach(theirs)).toFixed(2)}`,
      target: `≥ ${RATIO_MIN}`,
      met: ratio >= RATIO_MIN,
      goals: [
        { label: 'budgets, turns/s of those without', value: ratio, target: RATIO_MIN, unit: '', better: 'more' },
      ],
    },
  ];
};
