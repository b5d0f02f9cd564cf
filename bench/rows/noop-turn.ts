import { Sample } from '../figures.ts';
import { expectStatus } from '../loops.ts';
import type { Row } from '../row.ts';
import { bare, names, rotation, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const SESSIONS = 16;
const TURNS = 2_000;
const WARM_UP = 400;
/** Of the bare handler's. */
const P50_TIMES_MAX = 2;

/** One turn after the other, each followed by one message through the bare handler. */
export const noopTurn: Row = async ({ stage, scale, report }) => {
  const host = await stage.host('commands,reads,projector,engine');
  const baseline = await stage.baseline();
  const tenant = await Tenant.create(host, stage.adminKey);
  const ids = names('turns', SESSIONS);
  await tenant.openSessions(host, ids);
  let arrived = (): void => undefined;
  const readers = [
    ...(await Promise.all(
      ids.map(
        async (id) =>
          await tenant.follow(host, id, (frame) => {
            if (frame.includes('event: turn.completed')) arrived();
          }),
      ),
    )),
    ...(await Promise.all(ids.map(async (id) => await bare.follow(baseline, id, () => arrived())))),
  ];
  const [ours, theirs] = [new Lines(host.address), new Lines(baseline.address)];
  const next = rotation(ids);
  const timed = async (lines: Lines, text: string, sample: Sample): Promise<void> => {
    const began = performance.now();
    const seen = new Promise<void>((resolve) => {
      arrived = resolve;
    });
    const [answer] = await Promise.all([lines.send(text), seen]);
    sample.add(performance.now() - began);
    expectStatus(answer, 202);
  };
  const commit = JSON.stringify({ v: 1, text: 'x'.repeat(1_000) });
  let [subject, bareSample] = [new Sample(), new Sample()];
  for (let turn = 0; turn < WARM_UP + TURNS * scale; turn++) {
    if (turn === WARM_UP) [subject, bareSample] = [new Sample(), new Sample()];
    const id = next();
    await timed(ours, tenant.message(id, 'Hello'), subject);
    await timed(theirs, bare.append(id, commit), bareSample);
  }
  report(`${subject.size} turns`);
  for (const reader of readers) reader.close();
  ours.close();
  theirs.close();
  const p50 = subject.at(0.5) / bareSample.at(0.5);
  return [
    {
      measure: '3 no-op turn, POST to turn.completed on SSE (bare: POST to one republished message)',
      subject: subject.text,
      baseline: bareSample.text,
      ratio: p50.toFixed(2),
      target: `ratio: p50 ≤ ${P50_TIMES_MAX}`,
      met: p50 <= P50_TIMES_MAX,
      goals: [{ label: '3 no-op turn against bare, p50', value: p50, target: P50_TIMES_MAX, unit: '', better: 'less' }],
    },
  ];
};
