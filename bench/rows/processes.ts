import { median, Sample } from '../figures.ts';
import { followProjections } from '../projections.ts';
import type { Row } from '../row.ts';
import type { Node, Stage } from '../stage.ts';
import { names, Tenant } from '../tenant.ts';
import { describe, processTimes, SESSIONS_EACH, Slots, THREE_STEPS, total, usesOf, windowOf } from '../turns.ts';
import type { Window } from '../turns.ts';
import { Lines } from '../wire.ts';

const IN_FLIGHT = 64;
const WINDOW_MS = 6_000;
const ROUNDS = 3;
const RATIO_MIN = 1;
const PROCESSES = ['1', '2'] as const;

/** Three-step turns of one installation by a Host of one process and by one of several, which take turns. */
export const processes: Row = async ({ stage, scale, report }) => {
  const first = await stage.host('commands,reads,projector,engine', { AGENT_HOST_PROCESSES: '1' });
  const tenant = await Tenant.create(first, stage.adminKey);
  const ids = names('turns', IN_FLIGHT * SESSIONS_EACH);
  await tenant.openSessions(first, ids);
  await first.stop();
  const windows: Record<(typeof PROCESSES)[number], Window[]> = { '1': [], '2': [] };
  const parts: ReadonlyMap<string, number>[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    // Whoever is second finds a log and tables that are larger.
    for (const count of round % 2 === 0 ? PROCESSES : PROCESSES.toReversed()) {
      const host = await first.again({ AGENT_HOST_PROCESSES: count });
      const { window, byProcess } = await turnsOf({ stage, host }, { tenant, ids, forMs: WINDOW_MS * scale });
      await host.stop();
      windows[count].push(window);
      if (count === '2') parts.push(byProcess);
      report(`${count}: ${describe(window)}`);
    }
  }
  const perSecond = ({ turns, elapsedMs }: Window): number => (turns * 1_000) / elapsedMs;
  const ratio = median(windows['2'].map((two, round) => perSecond(two) / perSecond(windows['1'][round] ?? two)));
  const two = total(windows['2']);
  const shares = [...(parts[0]?.keys() ?? [])].map((name) => {
    const ms = parts.reduce((sum, part) => sum + (part.get(name) ?? 0), 0);
    return `process ${name} ${(ms / two.turns).toFixed(2)}`;
  });
  return [
    {
      measure: `three-step turns/s, ${IN_FLIGHT} in flight, by 2 processes (bare: by 1)`,
      subject: `${describe(two)}; ${shares.join(', ')}`,
      baseline: describe(total(windows['1'])),
      ratio: ratio.toFixed(2),
      target: `ratio ≥ ${RATIO_MIN}`,
      met: ratio >= RATIO_MIN,
      goals: [{ label: '2 processes against 1', value: ratio, target: RATIO_MIN, unit: '', better: 'more' }],
    },
  ];
};

async function turnsOf(
  { stage, host }: { readonly stage: Stage; readonly host: Node },
  { tenant, ids, forMs }: { readonly tenant: Tenant; readonly ids: readonly string[]; readonly forMs: number },
): Promise<{ readonly window: Window; readonly byProcess: ReadonlyMap<string, number> }> {
  const slots = await Slots.open({ tenant, host, ids });
  const progress = followProjections(stage);
  const lines = new Lines(host.address);
  const open = await lines.open(IN_FLIGHT);
  const latency = new Sample();
  const run = async (until: number): Promise<number> => {
    const turns = await slots.run(open, { script: THREE_STEPS, until, latency });
    await progress.caughtUp();
    return turns;
  };
  // A process that has just started is slow.
  await run(performance.now() + forMs / 2);
  const before = await processTimes(host);
  const window = await windowOf({ forMs, uses: usesOf(stage, host) }, run);
  const after = await processTimes(host);
  progress.stop();
  slots.close();
  lines.close();
  return { window, byProcess: new Map([...after].map(([name, ms]) => [name, ms - (before.get(name) ?? 0)])) };
}
