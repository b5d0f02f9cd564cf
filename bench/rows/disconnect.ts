import { setTimeout as pause } from 'node:timers/promises';
import { waitUntil } from '#src/embedded/wait-until.ts';
import { cuttable } from '../cuttable.ts';
import { ms, Sample } from '../figures.ts';
import { atMost, expectStatus, openLoop } from '../loops.ts';
import type { Row } from '../row.ts';
import { names, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';
import type { EventReader } from '../wire.ts';

const TAILS = 1_000;
const PER_SECOND = 150;
const WINDOW_MS = 5_000;
const SETTLES_WITHIN_MS = 1_000;
const P50_MAX_MS = 20;
const RETRY_MS = 50;
const ARRIVES_WITHIN_MS = 30_000;

const stamp = (): string => `sent@${performance.now().toFixed(3).padStart(14, '0')}`;
const STAMP = /sent@(\d+\.\d+)/;

/** 1,000 readers of one session that is written to, before and after the node has lost its connections to NATS once. */
export const disconnect: Row = async ({ stage, scale, report }) => {
  const nats = await cuttable(stage.natsUrl);
  try {
    const host = await stage.host('commands,reads,projector,engine', { NATS_URL: nats.url });
    const tenant = await Tenant.create(host, stage.adminKey);
    const [id = ''] = names('tails', 1);
    await tenant.openSessions(host, [id]);
    const figures = { before: new Sample(), after: new Sample() };
    let settledAt = Number.POSITIVE_INFINITY;
    const counts = Array.from({ length: TAILS }, () => 0);
    const readers: EventReader[] = [];
    await atMost(64, [...counts.keys()], async (tail) => {
      const reader = await tenant.follow(host, id, (frame) => {
        const sent = Number(STAMP.exec(frame)?.[1] ?? Number.NaN);
        if (Number.isNaN(sent)) return;
        counts[tail] = (counts[tail] ?? 0) + 1;
        if (settledAt === Number.POSITIVE_INFINITY) figures.before.add(performance.now() - sent);
        else if (sent >= settledAt) figures.after.add(performance.now() - sent);
      });
      readers.push(reader);
    });
    report(`${readers.length} readers`);
    const lines = new Lines(host.address);
    await lines.open(32);
    let sent = 0;
    const write = async (): Promise<void> => {
      sent++;
      const command = tenant.cancel(id, stamp());
      let answer = await lines.send(command);
      // While the node has no connection it refuses; sent again it is the same command, and as late as it is.
      for (; answer.status === 503; answer = await lines.send(command)) await pause(RETRY_MS);
      expectStatus(answer, 202);
    };
    await openLoop(PER_SECOND, WINDOW_MS * scale, write);
    settledAt = performance.now() + SETTLES_WITHIN_MS;
    nats.cut();
    await openLoop(PER_SECOND, SETTLES_WITHIN_MS + WINDOW_MS * scale, write);
    const isWhole = (): true | undefined => (counts.every((count) => count >= sent) ? true : undefined);
    await waitUntil(isWhole, { timeoutMs: ARRIVES_WITHIN_MS });
    const whole = counts.filter((count) => count >= sent).length;
    for (const reader of readers) reader.close();
    lines.close();
    const { before, after } = figures;
    return [
      {
        measure: `${TAILS} tails of one session at ${PER_SECOND} events/s, ${SETTLES_WITHIN_MS / 1_000} s after a disconnect (${whole} with everything)`,
        subject: after.text,
        baseline: `before it ${before.text}`,
        ratio: (after.at(0.5) / before.at(0.5)).toFixed(2),
        target: `p50 < ${ms(P50_MAX_MS)}, nobody ended`,
        met: whole === TAILS && after.at(0.5) < P50_MAX_MS,
        goals: [],
      },
    ];
  } finally {
    nats.close();
  }
};
