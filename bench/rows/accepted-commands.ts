import { median } from '../figures.ts';
import { closedLoop } from '../loops.ts';
import type { Run } from '../loops.ts';
import type { Measure, Row, RowContext } from '../row.ts';
import type { Node } from '../stage.ts';
import { bare, names, rotation, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const IN_FLIGHT = 64;
const ROUNDS = 4;
const WINDOW_MS = 2_000;
const IDLE_SESSIONS = 512;
/** A session takes one message; more than the windows use up: a fast machine accepted 4,700 a second. */
const FRESH_SESSIONS_PER_S = 6_000;
const RATIO_MIN = 0.75;

/**
 * Acceptance alone: a node with the role `commands`, no engine and no projector anywhere, against the bare handler. Their
 * windows take turns, so that what else the machine does meets both.
 */
export const acceptedCommands: Row = async (context) => {
  const { stage, scale, report } = context;
  const [commands, projector] = [await stage.host('commands'), await stage.host('projector')];
  const baseline = await stage.baseline();
  const tenant = await Tenant.create(commands, stage.adminKey);
  const idle = names('idle', IDLE_SESSIONS);
  const fresh = names('fresh', Math.ceil(((ROUNDS * WINDOW_MS * scale) / 1000 + 1) * FRESH_SESSIONS_PER_S));
  report(`opening ${idle.length + fresh.length} sessions`);
  await tenant.openSessions(commands, [...idle, ...fresh]);
  await projector.stop();
  const nextIdle = rotation(idle);
  const cancels = (): string => tenant.cancel(nextIdle(), 'nothing to cancel');
  const unused = fresh.values();
  const messages = (): string => {
    const { value } = unused.next();
    if (value === undefined)
      throw new Error('all fresh sessions are used up: FRESH_SESSIONS_PER_S is too low for this machine');
    return tenant.message(value, 'Hello');
  };
  const nodes = { subject: commands, baseline };
  const first = async (text: string): Promise<void> => {
    const lines = new Lines(commands.address);
    await lines.send(text);
    lines.close();
  };
  await first(tenant.cancel('idle-000000', 'nothing to cancel'));
  await first(tenant.message('fresh-000000', 'Hello'));
  unused.next();
  return [
    await compare(context, nodes, { name: 'cancel, idle sessions', next: cancels, like: 'idle-000000' }),
    await compare(context, nodes, { name: 'message, fresh sessions', next: messages, like: 'fresh-000000' }),
  ];
};

async function compare(
  { stage, scale, report }: RowContext,
  nodes: { subject: Node; baseline: Node },
  load: { name: string; next: () => string; like: string },
): Promise<Measure> {
  const commit = await stage.commitOf(load.like);
  const nextId = rotation(names(`bare-${load.like}`, IDLE_SESSIONS));
  const bareNext = (): string => bare.append(nextId(), commit);
  const [subject, baseline] = [new Lines(nodes.subject.address), new Lines(nodes.baseline.address)];
  const [subjectLines, baselineLines] = [await subject.open(IN_FLIGHT), await baseline.open(IN_FLIGHT)];
  const forMs = WINDOW_MS * scale;
  const rates: { subject: number[]; baseline: number[] } = { subject: [], baseline: [] };
  for (let round = 0; round <= ROUNDS; round++) {
    // The first round warms both up and is shorter.
    const window = round === 0 ? forMs / 3 : forMs;
    const ours = await closedLoop(subjectLines, { forMs: window, next: load.next, status: 202 });
    const theirs = await closedLoop(baselineLines, { forMs: window, next: bareNext, status: 202 });
    report(`${load.name}: ${perSecond(ours).toFixed(0)}/s against ${perSecond(theirs).toFixed(0)}/s`);
    if (round === 0) continue;
    rates.subject.push(perSecond(ours));
    rates.baseline.push(perSecond(theirs));
  }
  subject.close();
  baseline.close();
  const ratios = rates.subject.map((rate, round) => rate / (rates.baseline[round] ?? Number.NaN));
  const ratio = median(ratios);
  return {
    measure: `1 accepted commands/s, ${IN_FLIGHT} in flight (${load.name}, ${commit.length} B)`,
    subject: `${median(rates.subject).toFixed(0)}/s`,
    baseline: `${median(rates.baseline).toFixed(0)}/s`,
    ratio: ratio.toFixed(2),
    target: `ratio ≥ ${RATIO_MIN}`,
    met: ratio >= RATIO_MIN,
    goals: [{ label: `1 against bare: ${load.name}`, value: ratio, target: RATIO_MIN, unit: '', better: 'more' }],
  };
}

function perSecond(run: Run): number {
  return (run.done * 1000) / run.elapsedMs;
}
