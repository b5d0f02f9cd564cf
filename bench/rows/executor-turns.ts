import { LoadExecutor } from '../executor.ts';
import { ms, Sample } from '../figures.ts';
import { followProjections } from '../projections.ts';
import type { Measure, Row, RowContext } from '../row.ts';
import type { Node } from '../stage.ts';
import { names, rotation, Tenant } from '../tenant.ts';
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
const CONTROL_MS = 3_000;
const ALONE = 1_000;
const WARM_UP = 100;
const P50_MAX_MS = 8;
const APPENDS_MAX = 6;
const RATIO_MIN = 0.6;

const call = { name: 'work', input: {} };
const ONE_CALL = JSON.stringify({ fixture: [{ text: '1', toolCalls: [call] }, { text: '2' }] });
const TWO_CALLS = JSON.stringify({ fixture: [{ text: '1', toolCalls: [call, call] }, { text: '2' }] });

interface Scene extends RowContext {
  readonly host: Node;
  readonly ids: readonly string[];
  readonly slots: Slots;
  readonly ours: Lines;
  readonly headers: string;
}

/**
 * Turns whose tools an executor runs: their claims, their results and the projections included. Held against three-step
 * turns of the same Host, which make as many model calls and one more, and against the bare handler.
 */
export const executorTurns: Row = async (context) => {
  const { stage } = context;
  const host = await stage.host('commands,reads,projector,engine');
  const tenant = await Tenant.create(host, stage.adminKey);
  await tenant.saveAgent(host, 'bench', { tools: [{ name: 'work', inputSchema: { type: 'object' } }] });
  const headers = await tenant.registerExecutor(host, 'bench');
  const ids = names('turns', IN_FLIGHT * SESSIONS_EACH);
  await tenant.openSessions(host, ids);
  const slots = await Slots.open({ tenant, host, ids });
  const ours = new Lines(host.address);
  const scene = { ...context, host, ids, slots, ours, headers };
  const measures = [await alone(scene, 'each', ONE_CALL), await alone(scene, 'together', TWO_CALLS), await many(scene)];
  slots.close();
  ours.close();
  return measures;
};

/** One turn after the other. */
async function alone(scene: Scene, claiming: 'together' | 'each', script: string): Promise<Measure> {
  const { host, headers, ids, slots, ours, scale, stage } = scene;
  const executor = await LoadExecutor.connect(host, headers, claiming);
  const [line] = await ours.open(1);
  const next = rotation(ids);
  const [first = ''] = ids;
  const before = (await commitsOfTurn(stage, first)).length;
  await slots.turn(line, first, script);
  const appends = (await commitsOfTurn(stage, first)).length - before;
  let latency = new Sample();
  for (let turn = 0; turn < WARM_UP + ALONE * scale; turn++) {
    if (turn === WARM_UP) latency = new Sample();
    const began = performance.now();
    await slots.turn(line, next(), script);
    latency.add(performance.now() - began);
    if (executor.failure !== null) throw executor.failure;
  }
  executor.close();
  const calls = script === ONE_CALL ? 'one call, claimed by its id' : 'two calls, claimed together';
  const value = latency.at(0.5);
  return {
    measure: `executor, turn with ${calls}, one in flight`,
    subject: `${latency.text}; ${appends} appends`,
    ...{ baseline: '', ratio: '' },
    target: `p50 < ${ms(P50_MAX_MS)}, ≤ ${APPENDS_MAX} appends`,
    met: value < P50_MAX_MS && appends <= APPENDS_MAX,
    goals: [{ label: `executor, ${calls}, p50`, value, target: P50_MAX_MS, unit: 'ms', better: 'less' }],
  };
}

async function many(scene: Scene): Promise<Measure> {
  const { stage, host, headers, ids, slots, ours, scale, report } = scene;
  const executor = await LoadExecutor.connect(host, headers, 'together');
  // Not before: the Host closes a connection that brings no request for a while.
  const lines = await ours.open(IN_FLIGHT);
  const baseline = await stage.baseline();
  const theirs = new Lines(baseline.address);
  const theirLines = await theirs.open(IN_FLIGHT);
  const progress = followProjections(stage);
  const [first = ''] = ids;
  const before = (await commitsOfTurn(stage, first)).length;
  await slots.turn(lines[0], first, TWO_CALLS);
  const commits = (await commitsOfTurn(stage, first)).slice(before);
  let latency = new Sample();
  const windows: Record<'subject' | 'control' | 'bare', Window[]> = { subject: [], control: [], bare: [] };
  const run = async (script: string, forMs: number, sample: Sample): Promise<Window> =>
    await windowOf({ forMs, uses: usesOf(stage, host) }, async (until) => {
      const turns = await slots.run(lines, { script, until, latency: sample });
      await progress.caughtUp();
      return turns;
    });
  for (let round = 0; round <= ROUNDS; round++) {
    // The first round warms all of them up.
    const part = scale * (round === 0 ? 0.5 : 1);
    if (round === 1) latency = new Sample();
    const subject = await run(TWO_CALLS, SUBJECT_MS * part, latency);
    const control = await run(THREE_STEPS, CONTROL_MS * part, new Sample());
    const forBare = { forMs: CONTROL_MS * part, uses: usesOf(stage, baseline) };
    const bare = await windowOf(forBare, async (until) => await bareTurns(theirLines, { ids, commits, until }));
    report(`${describe(subject)}; three steps ${describe(control)}; bare ${describe(bare)}`);
    if (executor.failure !== null) throw executor.failure;
    if (round === 0) continue;
    windows.subject.push(subject);
    windows.control.push(control);
    windows.bare.push(bare);
  }
  progress.stop();
  theirs.close();
  executor.close();
  return measureMany(windows, latency, commits.length);
}

function measureMany(
  windows: Readonly<Record<'subject' | 'control' | 'bare', readonly Window[]>>,
  latency: Sample,
  appends: number,
): Measure {
  const [subject, control, bare] = [total(windows.subject), total(windows.control), total(windows.bare)];
  const perSecond = ({ turns, elapsedMs }: Window): number => (turns * 1000) / elapsedMs;
  const value = perSecond(subject) / perSecond(control);
  return {
    measure: `executor, turns/s with two calls, ${IN_FLIGHT} in flight (bare: ${appends} appends)`,
    subject: `${describe(subject)}; turn ${latency.text}; three-step turns beside it ${describe(control)}`,
    baseline: describe(bare),
    ratio: `${value.toFixed(2)} of three-step turns; ${(perSecond(subject) / perSecond(bare)).toFixed(2)} of bare, CPU ${(cpuEach(subject) / cpuEach(bare)).toFixed(2)}`,
    target: `≥ ${RATIO_MIN} of three-step turns`,
    met: value >= RATIO_MIN,
    goals: [{ label: 'executor, turns/s of three-step turns', value, target: RATIO_MIN, unit: '', better: 'more' }],
  };
}
