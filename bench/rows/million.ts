import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { readIfPresent } from '#src/lib/files.ts';
import { cursorsOf } from '../cursors.ts';
import { median, MIB, ms, residentBytes, Sample } from '../figures.ts';
import { Filler } from '../fill.ts';
import { expectStatus } from '../loops.ts';
import { followProjections } from '../projections.ts';
import type { Measure, Row } from '../row.ts';
import type { Stage } from '../stage.ts';
import { names, rotation, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';

const SMALL = 1_000;
const LARGE = 1_000_000;
/** Sessions that are opened between two reports. */
const CHUNK = 20_000;
const CALLS_EACH = 20;
const PAGE = 200;
const LONG = 'long';
const TIMES = 300;
const WARM_UP = 30;
const STARTS = 3;
/** Promise 6: what a command, an event and a page cost does not grow with history. */
const RATIO_MAX = 1.2;
const PROJECTED_WITHIN_MS = 3_600_000;

const filled = z.object({ count: z.int(), id: z.string(), key: z.string() });
type Filled = z.infer<typeof filled>;

/** What is measured of an installation, with a history of either size. */
interface Figures {
  readonly natsStartMs: number;
  readonly startMs: number;
  readonly coldMs: number;
  readonly natsBytes: number;
  readonly hostBytes: number;
  readonly append: Sample;
  readonly appendLong: Sample;
  readonly page: Sample;
  readonly list: Sample;
  readonly tail: Sample;
}

/**
 * One stream with a million sessions, one of which has a million records of history, against a thousand with a thousand.
 * The large one is filled once and kept; its servers are started anew on it for each run.
 */
export const million: Row = async ({ stage, scale, report, openKept }) => {
  const count = Math.floor(LARGE * scale * scale);
  const small = await measured(stage, await fill(stage, SMALL, report), report);
  const tenant = await on(openKept, async (large) => await filledBefore(large, count, report));
  return await on(openKept, async (large) => lines(await measured(large, tenant, report), small, count));
};

async function on<T>(open: () => Promise<Stage>, work: (stage: Stage) => Promise<T>): Promise<T> {
  const stage = await open();
  try {
    return await work(stage);
  } finally {
    await stage.close();
  }
}

async function filledBefore(stage: Stage, count: number, report: (line: string) => void): Promise<Filled> {
  const file = join(stage.directory, 'filled.json');
  const text = await readIfPresent(file);
  const before = text === undefined ? null : filled.parse(JSON.parse(text));
  if (before !== null && before.count !== count) {
    throw new Error(`${stage.directory} holds ${before.count} sessions, not ${count}; name another with --kept=`);
  }
  if (before !== null) return before;
  const made = await fill(stage, count, report);
  await writeFile(file, JSON.stringify(made), { mode: 0o600 });
  return made;
}

async function fill(stage: Stage, count: number, report: (line: string) => void): Promise<Filled> {
  // Without an engine: the turns here are written to the log by the bench.
  const host = await stage.host('commands,reads,projector');
  const tenant = await Tenant.create(host, stage.adminKey);
  await tenant.saveAgent(host, 'wide', { tools: [{ name: 'look', inputSchema: { type: 'object' } }] });
  const progress = followProjections(stage);
  const filler = await Filler.open({ natsUrl: stage.natsUrl, hostKey: stage.hostKey, tenantId: tenant.id });
  const began = performance.now();
  const told = (what: string): void => report(`${what} after ${((performance.now() - began) / 1_000).toFixed(0)} s`);
  await filler.openSessions([LONG], 'wide');
  for (let left = count; left > 0; left -= CHUNK * 10) {
    await filler.lengthen(LONG, 'look', Math.min(left, CHUNK * 10), CALLS_EACH);
    told(`${filler.records} records in one session`);
  }
  const ids = sessionsOf(count);
  for (let from = 0; from < count; from += CHUNK) {
    await filler.openSessions(ids.slice(from, from + CHUNK), 'bench');
    // The projector is given time to keep up: nothing here is about how far it can fall behind.
    await progress.caughtUp(PROJECTED_WITHIN_MS);
    if ((from / CHUNK) % 5 === 4) told(`${from + CHUNK} sessions`);
  }
  await filler.close();
  progress.stop();
  await host.stop();
  return { count, id: tenant.id, key: tenant.key };
}

function sessionsOf(count: number): readonly string[] {
  return names('many', count);
}

async function measured(stage: Stage, of: Filled, report: (line: string) => void): Promise<Figures> {
  const tenant = Tenant.of(of);
  const starts: number[] = [];
  const colds: number[] = [];
  let host = await stage.host('commands,reads,projector,engine');
  for (let start = 0; start < STARTS; start++) {
    await host.stop();
    const began = performance.now();
    host = await host.again();
    starts.push(performance.now() - began);
    const cold = performance.now();
    // Nobody has asked this process for the long session before: its fold comes from a snapshot and what follows it.
    await answered(host.address, tenant.cancel(LONG, 'cold'), 202);
    colds.push(performance.now() - cold);
  }
  const figures = {
    ...{ append: new Sample(), appendLong: new Sample(), page: new Sample() },
    ...{ list: new Sample(), tail: new Sample() },
  };
  const http = new Lines(host.address);
  const timed = async (request: string, status: number, sample: Sample): Promise<void> => {
    const began = performance.now();
    const answer = await http.send(request);
    sample.add(performance.now() - began);
    expectStatus(answer, status);
  };
  let arrived = (): void => undefined;
  const reader = await tenant.follow(host, LONG, (frame) => {
    if (frame.includes('command.cancel')) arrived();
  });
  // Far apart, so that neighbours in a block of the log are no help.
  const step = Math.max(1, Math.floor(of.count / (TIMES + WARM_UP)));
  const next = rotation(sessionsOf(of.count).filter((_, index) => index % step === 0));
  const [late = ''] = await cursorsOf(stage.databaseUrl, { tenant: of.id, id: LONG }, [of.count - PAGE]);
  for (let time = 0; time < TIMES + WARM_UP; time++) {
    const into = (sample: Sample): Sample => (time < WARM_UP ? new Sample() : sample);
    await timed(tenant.cancel(next(), 'nothing'), 202, into(figures.append));
    const began = performance.now();
    const seen = new Promise<void>((resolve) => (arrived = resolve));
    await timed(tenant.cancel(LONG, 'nothing'), 202, into(figures.appendLong));
    await seen;
    into(figures.tail).add(performance.now() - began);
    await timed(tenant.page(LONG, `cursor=${late}&limit=${PAGE}`), 200, into(figures.page));
    await timed(tenant.list(50), 200, into(figures.list));
  }
  reader.close();
  http.close();
  const result = {
    ...figures,
    startMs: median(starts),
    coldMs: median(colds),
    natsStartMs: stage.natsStartMs,
    natsBytes: residentBytes(stage.serverPids.nats),
    hostBytes: residentBytes(host.pid),
  };
  await host.stop();
  report(`${of.count} sessions: start ${ms(result.startMs)}, append ${result.append.text}, page ${result.page.text}`);
  return result;
}

async function answered(address: string, request: string, status: number): Promise<void> {
  const lines = new Lines(address);
  try {
    expectStatus(await lines.send(request), status);
  } finally {
    lines.close();
  }
}

function lines(large: Figures, small: Figures, count: number): readonly Measure[] {
  const line = (what: string, of: (figures: Figures) => number, bounded: boolean, shown = ms): Measure => {
    const ratio = of(large) / of(small);
    return {
      measure: `1M ${what}: ${count} sessions, one with ${count} records (bare: ${SMALL} and ${SMALL})`,
      subject: shown(of(large)),
      baseline: shown(of(small)),
      ratio: ratio.toFixed(2),
      target: bounded ? `ratio ≤ ${RATIO_MAX}` : 'none: a figure to look at',
      met: !bounded || ratio <= RATIO_MAX,
      goals: bounded ? [{ label: `1M ${what}`, value: ratio, target: RATIO_MAX, unit: '', better: 'less' }] : [],
    };
  };
  const memory = (bytes: number): string => `${(bytes / MIB).toFixed(0)} MiB`;
  return [
    line('memory of nats-server', ({ natsBytes }) => natsBytes, false, memory),
    line('memory of the Host', ({ hostBytes }) => hostBytes, false, memory),
    line('start of nats-server (small: empty)', ({ natsStartMs }) => natsStartMs, false),
    line('start of the Host', ({ startMs }) => startMs, false),
    line('first command on the long session after it', ({ coldMs }) => coldMs, false),
    line('append to sessions far apart, p50', ({ append }) => append.at(0.5), false),
    line('append to the long session, p50', ({ appendLong }) => appendLong.at(0.5), true),
    line(`page of ${PAGE} at its end, p50`, ({ page }) => page.at(0.5), true),
    line('append to SSE of it, p50', ({ tail }) => tail.at(0.5), true),
    line('list of 50 sessions, p50', ({ list }) => list.at(0.5), true),
  ];
}
