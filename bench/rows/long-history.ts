import { ms, Sample } from '../figures.ts';
import { Filler } from '../fill.ts';
import { cursorsOf } from '../cursors.ts';
import { expectStatus } from '../loops.ts';
import { followProjections } from '../projections.ts';
import type { Row } from '../row.ts';
import { Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const RECORDS = 1_000_000;
const EARLY = 1_000;
const PAGE = 200;
const PAGES = 400;
const WARM_UP = 50;
const CALLS_EACH = 20;
const RATIO_MAX = 1.2;
const PROJECTED_WITHIN_MS = 120_000;
const SESSION = 'long';

/** Pages of one session that are early in its history and late, in turns. */
export const longHistory: Row = async ({ stage, scale, report }) => {
  const records = Math.floor(RECORDS * scale);
  // Without an engine: the turns here are written to the log by the bench.
  const host = await stage.host('commands,reads,projector');
  const tenant = await Tenant.create(host, stage.adminKey);
  const tools = [{ name: 'look', inputSchema: { type: 'object' } }];
  await tenant.saveAgent(host, 'wide', { tools });
  const progress = followProjections(stage);
  const filler = await Filler.open({ natsUrl: stage.natsUrl, hostKey: stage.hostKey, tenantId: tenant.id });
  const began = performance.now();
  await filler.openSessions([SESSION], 'wide');
  await filler.lengthen(SESSION, 'look', records + PAGE, CALLS_EACH);
  const filledMs = performance.now() - began;
  await filler.close();
  await progress.caughtUp(PROJECTED_WITHIN_MS);
  progress.stop();
  report(`${filler.records} records in ${ms(filledMs)}, and projected ${ms(progress.lastLagMs)} later`);
  const [early, late] = [new Sample(), new Sample()];
  const lines = new Lines(host.address);
  const places = await cursorsOf(stage.databaseUrl, { tenant: tenant.id, id: SESSION }, [EARLY, records]);
  const timed = async (cursor: string | undefined, sample: Sample): Promise<void> => {
    const request = tenant.page(SESSION, `cursor=${cursor ?? ''}&limit=${PAGE}`);
    const start = performance.now();
    const answer = await lines.send(request);
    sample.add(performance.now() - start);
    expectStatus(answer, 200);
    if (!answer.body.includes('"hasMore"')) throw new Error('that was not a page');
    if (answer.body.split('"eventId"').length - 1 !== PAGE) throw new Error('a page is not full');
  };
  for (let page = 0; page < WARM_UP + PAGES * scale; page++) {
    await timed(places[0], page < WARM_UP ? new Sample() : early);
    await timed(places[1], page < WARM_UP ? new Sample() : late);
  }
  lines.close();
  const ratio = late.at(0.5) / early.at(0.5);
  return [
    {
      measure: `7 page of ${PAGE} at event ${records} of a session (bare: at its event ${EARLY})`,
      subject: late.text,
      baseline: early.text,
      ratio: ratio.toFixed(2),
      target: `≤ ${RATIO_MAX}`,
      met: ratio <= RATIO_MAX,
      goals: [
        {
          label: `7 page at event ${records} ÷ at ${EARLY}`,
          value: ratio,
          target: RATIO_MAX,
          unit: '',
          better: 'less',
        },
      ],
    },
  ];
};
