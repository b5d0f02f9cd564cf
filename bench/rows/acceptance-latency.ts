import { Sample } from '../figures.ts';
import { expectStatus, openLoop } from '../loops.ts';
import type { Row } from '../row.ts';
import { bare, names, rotation, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const PER_SECOND = 200;
const ROUNDS = 4;
const WINDOW_MS = 4_000;
const SESSIONS = 200;
/** Of the bare handler's. */
const P50_TIMES_MAX = 1.25;
const P99_TIMES_MAX = 2;

/** How long the acceptance of one command takes at a moderate rate, on a node that does nothing else. */
export const acceptanceLatency: Row = async ({ stage, scale, report }) => {
  const [commands, projector] = [await stage.host('commands'), await stage.host('projector')];
  const baseline = await stage.baseline();
  const tenant = await Tenant.create(commands, stage.adminKey);
  const ids = names('idle', SESSIONS);
  await tenant.openSessions(commands, ids);
  await projector.stop();
  const [ours, theirs] = [new Lines(commands.address), new Lines(baseline.address)];
  await Promise.all([ours.open(16), theirs.open(16)]);
  const next = rotation(ids);
  await ours.send(tenant.cancel(next(), 'nothing to cancel'));
  const commit = await stage.commitOf(ids[0] ?? '');
  const send = async (lines: Lines, text: string, sample: Sample): Promise<void> => {
    const began = performance.now();
    expectStatus(await lines.send(text), 202);
    sample.add(performance.now() - began);
  };
  let [subject, bareSample] = [new Sample(), new Sample()];
  for (let round = 0; round <= ROUNDS; round++) {
    // The first round warms both up.
    if (round === 1) [subject, bareSample] = [new Sample(), new Sample()];
    const forMs = WINDOW_MS * scale;
    await openLoop(PER_SECOND, forMs, async () => {
      await send(ours, tenant.cancel(next(), 'nothing to cancel'), subject);
    });
    await openLoop(PER_SECOND, forMs, async () => {
      await send(theirs, bare.append(next(), commit), bareSample);
    });
    report(`so far ${subject.text} against ${bareSample.text}`);
  }
  ours.close();
  theirs.close();
  const [p50, p99] = [0.5, 0.99].map((part) => subject.at(part) / bareSample.at(part)) as [number, number];
  return [
    {
      measure: `2 command accepted at ${PER_SECOND}/s`,
      subject: subject.text,
      baseline: bareSample.text,
      ratio: `p50 ${p50.toFixed(2)}, p99 ${p99.toFixed(2)}`,
      target: `ratio: p50 ≤ ${P50_TIMES_MAX}, p99 ≤ ${P99_TIMES_MAX}`,
      met: p50 <= P50_TIMES_MAX && p99 <= P99_TIMES_MAX,
      goals: [
        { label: '2 accepted against bare, p50', value: p50, target: P50_TIMES_MAX, unit: '', better: 'less' },
        { label: '2 accepted against bare, p99', value: p99, target: P99_TIMES_MAX, unit: '', better: 'less' },
      ],
    },
  ];
};
