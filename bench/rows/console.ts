import { dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import type { Browser, Page } from 'playwright-core';
import { openDoor } from '#src/console/server/door.ts';
import { buildProgram } from '../../scripts/build.ts';
import { HAS_CHROMIUM, startBrowser, WIDE } from '../../test/support/browser.ts';
import { ms, Sample } from '../figures.ts';
import { Filler } from '../fill.ts';
import { expectStatus } from '../loops.ts';
import { followProjections } from '../projections.ts';
import type { Measure, Row, RowContext } from '../row.ts';
import type { Node } from '../stage.ts';
import { names, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

/** As the program beside them serves them. */
const PAGES = join(dirname(await buildProgram()), 'console');
const SHORT = 100;
const LISTED = 200;
const CALLS_EACH = 20;
/** Records that are written before the projector is waited for. */
const CHUNK = 50_000;
const PROJECTED_WITHIN_MS = 600_000;
const OPENED = 10;
const PAINT_MAX_MS = 1_000;
/** Opening a session takes as long as opening a short one. */
const RATIO_MAX = 1.2;
const PER_SECOND = 300;
const WINDOW_MS = 45_000;
const IDLE_MS = 3_000;
const RECEIPTS_MS = 60_000;
const AGAIN_MS = 1_000;
/** Of what the browser draws when nothing arrives: its own clock is not quite that of a screen. */
const FRAMES_MIN = 0.97;
const ROW_OF_LIST = 'table.sessions tbody tr';
const ENTRY = 'article.entry';

/** When what a page is opened for has been drawn: looked for in each frame. */
const PAINTED = `window.painted = new Promise((resolve) => {
  const look = () => requestAnimationFrame(document.querySelector('${ROW_OF_LIST}, ${ENTRY}') === null ? look : resolve);
  look();
})`;

/** From now on the times between frames, and how long tasks held the page that took over 50 ms. */
const WATCH = `(() => {
  const [frames, tasks] = [[], []];
  window.watched = { frames, tasks };
  new PerformanceObserver((list) => tasks.push(...list.getEntries().map(({ duration }) => duration)))
    .observe({ type: 'longtask' });
  let before = performance.now();
  const look = (at) => {
    frames.push(at - before);
    before = at;
    if (window.watched.frames === frames) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()`;

/** The console in a browser: how soon its pages are there, and whether they are drawn in time while much arrives. */
export const consolePages: Row = async (context) => {
  if (!HAS_CHROMIUM) throw new Error('this row needs a browser: apt-get install chromium-headless-shell');
  const { scale, report } = context;
  const records = Math.floor(context.records * scale);
  const { host, tenant, filler } = await filled(context, records);
  const door = await openDoor({
    url: `http://${host.address}`,
    authority: { kind: 'tenant', tenant: tenant.id, key: tenant.key },
    directory: PAGES,
    port: 0,
  });
  const browser = await startBrowser();
  try {
    const first = await browser.newContext();
    const page = await first.newPage();
    const scripts = sizeOfScripts(page);
    await page.goto(door.link());
    await page.locator(ROW_OF_LIST).first().waitFor();
    const open = { browser, url: door.url, state: await first.storageState() };
    report(`scripts and styles of the first page: ${((await scripts()) / 1_000).toFixed(1)} kB with gzip`);
    const paints = { list: new Sample(), short: new Sample(), long: new Sample() };
    for (let time = 0; time < OPENED; time++) {
      paints.list.add(await paint(open, '/sessions'));
      paints.short.add(await paint(open, '/sessions/short'));
      paints.long.add(await paint(open, '/sessions/long'));
    }
    await first.close();
    report(`list ${paints.list.text}; short ${paints.short.text}; long ${paints.long.text}`);
    const arriving = await arrivals(open, { host, tenant, filler, forMs: WINDOW_MS * scale });
    report(arriving.text);
    return [...paintLines(paints, records), framesLine(arriving)];
  } finally {
    await browser.close();
    await door.close();
    await filler.close();
  }
};

interface Filled {
  readonly host: Node;
  readonly tenant: Tenant;
  readonly filler: Filler;
}

/** A tenant with a list of sessions, of which one is short and one is long. */
async function filled({ stage, report }: RowContext, records: number): Promise<Filled> {
  // Without an engine: the turns here are written to the log by the bench.
  const host = await stage.host('commands,reads,projector');
  const tenant = await Tenant.create(host, stage.adminKey);
  await tenant.saveAgent(host, 'wide', { tools: [{ name: 'look', inputSchema: { type: 'object' } }] });
  const progress = followProjections(stage);
  const filler = await Filler.open({ natsUrl: stage.natsUrl, hostKey: stage.hostKey, tenantId: tenant.id });
  const began = performance.now();
  await filler.openSessions([...names('many', LISTED), 'short', 'long'], 'wide');
  await filler.lengthen('short', 'look', SHORT, CALLS_EACH);
  for (let left = records; left > 0; left -= CHUNK) {
    await filler.lengthen('long', 'look', Math.min(left, CHUNK), CALLS_EACH);
    await progress.caughtUp(PROJECTED_WITHIN_MS);
  }
  progress.stop();
  report(`${filler.records} records are there after ${((performance.now() - began) / 1_000).toFixed(0)} s`);
  return { host, tenant, filler };
}

/** What a page loads besides itself, gzipped, bytes. */
function sizeOfScripts(page: Page): () => Promise<number> {
  const bodies: Promise<Buffer>[] = [];
  page.on('response', (response) => {
    if (response.url().includes('/assets/')) bodies.push(response.body());
  });
  return async () => (await Promise.all(bodies)).reduce((sum, body) => sum + gzipSync(body).length, 0);
}

interface Open {
  readonly browser: Browser;
  readonly url: string;
  /** What the browser of someone keeps who has signed in. */
  readonly state: Awaited<ReturnType<ReturnType<Page['context']>['storageState']>>;
}

/** Opens a page in a browser that has nothing of it yet; `paintedMs` since it was asked for. */
async function opened({ browser, url, state }: Open, path: string): Promise<{ page: Page; paintedMs: number }> {
  const visitor = await browser.newContext({ storageState: state, viewport: WIDE });
  const page = await visitor.newPage();
  await page.addInitScript(PAINTED);
  await page.goto(`${url}${path}`);
  return { page, paintedMs: Number(await page.evaluate('window.painted')) };
}

async function paint(open: Open, path: string): Promise<number> {
  const { page, paintedMs } = await opened(open, path);
  await page.context().close();
  return paintedMs;
}

interface Watched {
  readonly frames: readonly number[];
  readonly tasks: readonly number[];
}

interface Arriving {
  readonly perSecond: number;
  readonly idlePerSecond: number;
  readonly text: string;
}

async function arrivals(open: Open, { host, tenant, filler, forMs }: Filled & { forMs: number }): Promise<Arriving> {
  // What the machine leaves a page that has nothing to do while as much is written and projected.
  const { page: other } = await opened(open, '/sessions/short');
  const beside = await watched(other, async () => void (await come(filler, forMs)));
  await other.context().close();
  const { page } = await opened(open, '/sessions/long');
  const says = async (text: string): Promise<void> => {
    const lines = new Lines(host.address);
    const command = tenant.cancel('long', text);
    let answer = await lines.send(command);
    // The filler writes no receipts but those in the log: of a million records the Host reads them first, and says so.
    for (const until = performance.now() + RECEIPTS_MS; answer.status === 503 && performance.now() < until;) {
      await pause(AGAIN_MS);
      answer = await lines.send(command);
    }
    expectStatus(answer, 202);
    lines.close();
    await page.getByText(text, { exact: true }).waitFor();
  };
  await says('the first');
  const idle = await watched(page, async () => await page.waitForTimeout(IDLE_MS));
  let perSecondCame = 0;
  const busy = await watched(page, async () => {
    perSecondCame = await come(filler, forMs);
    await says('the last');
  });
  const [perSecond, idlePerSecond] = [rateOf(busy), rateOf(idle)];
  const late = busy.frames.filter((frame) => frame > 1_500 / idlePerSecond).length;
  const text =
    `${perSecondCame.toFixed(0)} records a second; of ${busy.frames.length} frames ${late} were late, the longest took ` +
    `${ms(Math.max(...busy.frames))}; tasks over 50 ms: ${busy.tasks.length}, the longest ${ms(Math.max(0, ...busy.tasks))}; ` +
    `a page beside as much has ${rateOf(beside).toFixed(1)} frames a second`;
  return { perSecond, idlePerSecond, text };
}

async function watched(page: Page, during: () => Promise<void>): Promise<Watched> {
  await page.evaluate(WATCH);
  await during();
  return (await page.evaluate('window.watched')) as Watched;
}

/** Records of the long session, as turns: a message, an answer with its calls, and their end. Resolves to how many came a second. */
async function come(filler: Filler, forMs: number): Promise<number> {
  const [began, before] = [performance.now(), filler.records];
  for (;;) {
    await filler.lengthen('long', 'look', 1, CALLS_EACH);
    const came = filler.records - before;
    await pause(Math.max(0, (came * 1_000) / PER_SECOND - (performance.now() - began)));
    const tookMs = performance.now() - began;
    if (tookMs >= forMs) return (came * 1_000) / tookMs;
  }
}

function rateOf({ frames }: Watched): number {
  return (frames.length * 1_000) / frames.reduce((sum, frame) => sum + frame, 0);
}

function paintLines(paints: Record<'list' | 'short' | 'long', Sample>, records: number): readonly Measure[] {
  const { list, short, long } = paints;
  const ratio = long.at(0.5) / short.at(0.5);
  const line = (what: string, sample: Sample): Measure => ({
    measure: `console: first useful paint of ${what}`,
    subject: sample.text,
    baseline: 'none',
    ratio: 'none',
    target: `p50 < ${ms(PAINT_MAX_MS)}`,
    met: sample.at(0.5) < PAINT_MAX_MS,
    goals: [{ label: `paint of ${what}`, value: sample.at(0.5), target: PAINT_MAX_MS, unit: ' ms', better: 'less' }],
  });
  return [
    line('the list of sessions', list),
    line(`a session of ${SHORT} records`, short),
    line(`a session of ${records} records`, long),
    {
      measure: `console: opening a session of ${records} records (bare: of ${SHORT})`,
      subject: ms(long.at(0.5)),
      baseline: ms(short.at(0.5)),
      ratio: ratio.toFixed(2),
      target: `ratio ≤ ${RATIO_MAX}`,
      met: ratio <= RATIO_MAX,
      goals: [{ label: 'opening a long session', value: ratio, target: RATIO_MAX, unit: '', better: 'less' }],
    },
  ];
}

function framesLine({ perSecond, idlePerSecond }: Arriving): Measure {
  const ratio = perSecond / idlePerSecond;
  return {
    measure: `console: frames a second while ${PER_SECOND} records a second arrive (bare: while none does)`,
    subject: perSecond.toFixed(1),
    baseline: idlePerSecond.toFixed(1),
    ratio: ratio.toFixed(2),
    target: `ratio ≥ ${FRAMES_MIN}`,
    met: ratio >= FRAMES_MIN,
    goals: [{ label: 'frames while records arrive', value: ratio, target: FRAMES_MIN, unit: '', better: 'more' }],
  };
}
