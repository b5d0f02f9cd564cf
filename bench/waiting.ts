import { once } from 'node:events';
import { open } from 'node:fs/promises';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { ms, Sample } from './figures.ts';
import { expectStatus } from './loops.ts';
import { rotation, Tenant } from './tenant.ts';
import { Lines } from './wire.ts';

/** What this program is given, as JSON in `WAITING`. */
export interface Waiting {
  readonly address: string;
  /** On the disk of the log. */
  readonly directory: string;
  readonly sessions: readonly string[];
  /** Not the one that appends: a list waits, for up to 100 ms, for what its own tenant has just recorded. */
  readonly reader: Pick<Tenant, 'id' | 'key'>;
  readonly writer: Pick<Tenant, 'id' | 'key'>;
}

/** What it says at its end, as one line of JSON. */
export interface Waited {
  readonly text: string;
  readonly longestMs: number;
}

/** Requests that warm a connection, and this program, up. */
const WARM_UP = 100;
const SYNC_EVERY_MS = 5;
const OWN_EVERY_MS = 5;
const LINE = Buffer.alloc(500);

/*
 * What tenants wait for, request by request, until the standard input ends: one that reads and one that appends at a time.
 * And what the disk makes a program wait that has nothing to do with either: each append waits for it as well. In a process
 * of its own, for one that has filled a log before stands still now and then for half a second, to collect it.
 */

const given = JSON.parse(process.env['WAITING'] ?? '') as Waiting;
const lines = new Lines(given.address);
const [reader, writer] = [Tenant.of(given.reader), Tenant.of(given.writer)];
const [read = ''] = given.sessions;
const nextRead = rotation([reader.page(read, 'limit=50'), reader.list(20)]);
const nextAppended = rotation(given.sessions);
const longest = { ms: 0, atMs: 0 };
let begun = performance.now();
let isDone = false;

async function asking(next: () => string, status: number, isOver: (asked: number) => boolean): Promise<Sample> {
  const waits = new Sample();
  while (!isOver(waits.size)) {
    const sent = performance.now();
    expectStatus(await lines.send(next()), status);
    const waited = performance.now() - sent;
    waits.add(waited);
    if (waited > longest.ms) Object.assign(longest, { ms: waited, atMs: sent - begun });
  }
  return waits;
}

async function both(isOver: (asked: number) => boolean): Promise<readonly [reads: Sample, appends: Sample]> {
  return await Promise.all([
    asking(nextRead, 200, isOver),
    asking(() => writer.cancel(nextAppended(), 'nothing to cancel'), 202, isOver),
  ]);
}

async function syncing(): Promise<Sample> {
  const waits = new Sample();
  await using file = await open(join(given.directory, 'synced'), 'w');
  while (!isDone) {
    const asked = performance.now();
    await file.write(LINE, 0);
    await file.datasync();
    waits.add(performance.now() - asked);
    await pause(SYNC_EVERY_MS);
  }
  return waits;
}

await both((asked) => asked >= WARM_UP);
Object.assign(longest, { ms: 0, atMs: 0 });
begun = performance.now();
const own = monitorEventLoopDelay({ resolution: OWN_EVERY_MS });
own.enable();
const told = once(process.stdin.resume(), 'end').then(() => (isDone = true));
process.stdout.write('begun\n');
const [[reads, appends], syncs] = await Promise.all([both(() => isDone), syncing(), told]);
lines.close();
const text =
  `reads ${reads.text}, appends ${appends.text}, the longest ${ms(longest.atMs)} after its begin; an fsync of a line in a file ` +
  `of its own ${syncs.text}; who measures was late by ${ms(own.max / 1e6)} at most`;
process.stdout.write(`${JSON.stringify({ text, longestMs: longest.ms } satisfies Waited)}\n`);
