import { ms, Sample } from '../figures.ts';
import { atMost, expectStatus, openLoop } from '../loops.ts';
import type { Row } from '../row.ts';
import { bare, names, rotation, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';
import type { EventReader } from '../wire.ts';

const SESSIONS = 100;
const TAILS_EACH = 10;
const PER_SECOND = 300;
const ROUNDS = 3;
const WINDOW_MS = 5_000;
const P50_MAX_MS = 3;
const P99_MAX_MS = 30;

/** The time of sending, in the event itself: as wide as every other, so that all events have as many bytes. */
const stamp = (): string => `sent@${performance.now().toFixed(3).padStart(14, '0')}`;
const STAMP = /sent@(\d+\.\d+)/;
const CREATED = '"createdAt":"';

/** From before a command is sent until its event has reached each of its session's readers, of 1,000 on one node. */
export const liveTails: Row = async ({ stage, scale, report }) => {
  const host = await stage.host('commands,reads,projector,engine');
  const baseline = await stage.baseline();
  const tenant = await Tenant.create(host, stage.adminKey);
  const ids = names('tails', SESSIONS);
  await tenant.openSessions(host, ids);
  const figures = { subject: new Sample(), baseline: new Sample(), created: new Sample() };
  const readers: EventReader[] = [];
  const everyTail = Array.from({ length: TAILS_EACH }, () => ids).flat();
  await atMost(64, everyTail, async (id) => {
    readers.push(
      await tenant.follow(host, id, (frame) => {
        const sent = STAMP.exec(frame)?.[1];
        if (sent === undefined) return;
        figures.subject.add(performance.now() - Number(sent));
        const created = frame.indexOf(CREATED) + CREATED.length;
        figures.created.add(
          performance.timeOrigin + performance.now() - Date.parse(frame.slice(created, created + 24)),
        );
      }),
      await bare.follow(baseline, id, (frame) => {
        const sent = STAMP.exec(frame)?.[1];
        if (sent !== undefined) figures.baseline.add(performance.now() - Number(sent));
      }),
    );
  });
  report(`${readers.length} readers`);
  const [ours, theirs] = [new Lines(host.address), new Lines(baseline.address)];
  await Promise.all([ours.open(32), theirs.open(32)]);
  const next = rotation(ids);
  expectStatus(await ours.send(tenant.cancel(ids[0] ?? '', stamp())), 202);
  // What the log holds is sealed: its text stands for the length alone.
  const rest = (await stage.commitOf(ids[0] ?? '')).slice(stamp().length);
  let sent = 0;
  for (let round = 0; round <= ROUNDS; round++) {
    const forMs = round === 0 ? WINDOW_MS * scale * 0.5 : WINDOW_MS * scale;
    // The first round warms both up.
    if (round === 1) Object.assign(figures, { subject: new Sample(), baseline: new Sample(), created: new Sample() });
    if (round === 1) sent = 0;
    await openLoop(PER_SECOND, forMs, async () => {
      sent++;
      expectStatus(await ours.send(tenant.cancel(next(), stamp())), 202);
    });
    await openLoop(PER_SECOND, forMs, async () => {
      expectStatus(await theirs.send(bare.append(next(), `${stamp()}${rest}`)), 202);
    });
    report(`so far ${figures.subject.text} against ${figures.baseline.text}`);
  }
  for (const reader of readers) reader.close();
  ours.close();
  theirs.close();
  const { subject, baseline: bareSample, created } = figures;
  const complete = subject.size >= sent * TAILS_EACH * 0.999;
  return [
    {
      measure: `5 append to SSE, ${SESSIONS * TAILS_EACH} tails at ${PER_SECOND} events/s (${subject.size} of ${sent * TAILS_EACH} arrived)`,
      subject: `${subject.text}; from createdAt p50 ${ms(created.at(0.5))} p99 ${ms(created.at(0.99))}`,
      baseline: bareSample.text,
      ratio: (subject.at(0.5) / bareSample.at(0.5)).toFixed(2),
      target: `p50 < ${ms(P50_MAX_MS)}, p99 < ${ms(P99_MAX_MS)}`,
      met: complete && subject.at(0.5) < P50_MAX_MS && subject.at(0.99) < P99_MAX_MS,
      goals: [
        {
          label: '5 append to SSE, 1,000 tails, p50',
          value: subject.at(0.5),
          target: P50_MAX_MS,
          unit: 'ms',
          better: 'less',
        },
        {
          label: '5 append to SSE, 1,000 tails, p99',
          value: subject.at(0.99),
          target: P99_MAX_MS,
          unit: 'ms',
          better: 'less',
        },
      ],
    },
  ];
};
