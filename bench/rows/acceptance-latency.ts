import { ms, Sample } from '../figures.ts';
import { expectStatus, openLoop } from '../loops.ts';
import type { Row } from '../row.ts';
import { bare, names, rotation, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const PER_SECOND = 200;
const ROUNDS = 4;
const WINDOW_MS = 4_000;
const SESSIONS = 200;
const P50_MAX_MS = 1.5;
const P99_MAX_MS = 15;

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
  return [
    {
      measure: `2 command accepted at ${PER_SECOND}/s`,
      subject: subject.text,
      baseline: bareSample.text,
      ratio: (subject.at(0.5) / bareSample.at(0.5)).toFixed(2),
      target: `p50 < ${ms(P50_MAX_MS)}, p99 < ${ms(P99_MAX_MS)}`,
      met: subject.at(0.5) < P50_MAX_MS && subject.at(0.99) < P99_MAX_MS,
      goals: [
        { label: '2 accepted, p50', value: subject.at(0.5), target: P50_MAX_MS, unit: 'ms', better: 'less' },
        { label: '2 accepted, p99', value: subject.at(0.99), target: P99_MAX_MS, unit: 'ms', better: 'less' },
      ],
    },
  ];
};
