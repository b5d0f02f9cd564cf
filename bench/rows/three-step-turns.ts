import { ms, Sample } from '../figures.ts';
import { followProjections } from '../projections.ts';
import type { Row } from '../row.ts';
import { names, Tenant } from '../tenant.ts';
import {
  bareTurns,
  commitsOfTurn,
  cpuEach,
  describe,
  usesOf,
  SESSIONS_EACH,
  Slots,
  THREE_STEPS,
  total,
  windowOf,
} from '../turns.ts';
import type { Window } from '../turns.ts';
import { Lines } from '../wire.ts';

const IN_FLIGHT = 64;
const ROUNDS = 3;
const SUBJECT_MS = 6_000;
const BASELINE_MS = 3_000;
/** Of the bare handler's: turns a second, and processor time of a turn, which has a bound of its own too. */
const TIMES_MIN = 0.6;
const CPU_TIMES_MAX = 2.5;
const CPU_MAX_MS = 1.7;

/** Whole turns with everything that belongs to them: the window ends when the read models have the last one. */
export const threeStepTurns: Row = async (context) => {
  const { stage, scale, report } = context;
  const host = await stage.host('commands,reads,projector,engine');
  const baseline = await stage.baseline();
  const tenant = await Tenant.create(host, stage.adminKey);
  const ids = names('turns', IN_FLIGHT * SESSIONS_EACH);
  await tenant.openSessions(host, ids);
  const slots = await Slots.open({ tenant, host, ids });
  const progress = followProjections(stage);
  const [ours, theirs] = [new Lines(host.address), new Lines(baseline.address)];
  const [ourLines, theirLines] = [await ours.open(IN_FLIGHT), await theirs.open(IN_FLIGHT)];
  await slots.turn(ourLines[0], ids[0] ?? '', THREE_STEPS);
  const commits = await commitsOfTurn(stage, ids[0] ?? '');
  let latency = new Sample();
  const windows: { subject: Window[]; baseline: Window[] } = { subject: [], baseline: [] };
  for (let round = 0; round <= ROUNDS; round++) {
    // The first round warms both up.
    const part = round === 0 ? 0.5 : 1;
    const forSubject = { forMs: SUBJECT_MS * scale * part, uses: usesOf(stage, host) };
    if (round === 1) latency = new Sample();
    const subject = await windowOf(forSubject, async (until) => {
      const turns = await slots.run(ourLines, { script: THREE_STEPS, until, latency });
      await progress.caughtUp();
      return turns;
    });
    const forBaseline = { forMs: BASELINE_MS * scale * part, uses: usesOf(stage, baseline) };
    const bareWindow = await windowOf(
      forBaseline,
      async (until) => await bareTurns(theirLines, { ids, commits, until }),
    );
    report(`${describe(subject)} against ${describe(bareWindow)}, turn ${latency.text}, lag ${ms(progress.lastLagMs)}`);
    if (round > 0) windows.subject.push(subject);
    if (round > 0) windows.baseline.push(bareWindow);
  }
  progress.stop();
  slots.close();
  ours.close();
  theirs.close();
  return [measure(windows, { latency, commits: commits.length })];
};

function measure(
  windows: { subject: readonly Window[]; baseline: readonly Window[] },
  { latency, commits }: { latency: Sample; commits: number },
): Awaited<ReturnType<Row>>[number] {
  const [subject, baseline] = [total(windows.subject), total(windows.baseline)];
  const perSecond = (subject.turns * 1000) / subject.elapsedMs;
  const times = perSecond / ((baseline.turns * 1000) / baseline.elapsedMs);
  const cpu = cpuEach(subject);
  const cpuTimes = cpu / cpuEach(baseline);
  return {
    measure: `4 three-step turns/s, ${IN_FLIGHT} in flight, projections included (bare: ${commits} appends)`,
    subject: `${describe(subject)}; turn ${latency.text}`,
    baseline: describe(baseline),
    ratio: `${times.toFixed(2)}, CPU ${cpuTimes.toFixed(2)}`,
    target: `ratio ≥ ${TIMES_MIN}, CPU ≤ ${CPU_TIMES_MAX} and ≤ ${ms(CPU_MAX_MS)} a turn`,
    met: times >= TIMES_MIN && cpuTimes <= CPU_TIMES_MAX && cpu <= CPU_MAX_MS,
    goals: [
      { label: '4 three-step turns against bare', value: times, target: TIMES_MIN, unit: '', better: 'more' },
      { label: '4 processor time against bare', value: cpuTimes, target: CPU_TIMES_MAX, unit: '', better: 'less' },
      { label: '4 processor time of a turn', value: cpu, target: CPU_MAX_MS, unit: 'ms', better: 'less' },
    ],
  };
}
