import { audit } from '../projections/audit.ts';
import type { AuditOptions } from '../projections/audit.ts';
import type { ReplayEnd } from '../projections/fill.ts';
import { decodeCursor, placeInCursor } from '../streams/cursor.ts';
import type { EventPlace } from '../streams/cursor.ts';
import type { CommitSource } from '../streams/event-store.ts';
import type { Config } from '../app/config.ts';
import { StartError } from '../lib/start-error.ts';
import { version } from '../app/version.ts';
import { readArguments } from './arguments.ts';
import { groupsNamed, secondsSince } from './rebuild.ts';
import { operatorOptionsOf } from './catalog/operators.ts';
import { print } from './client/output.ts';
import { withFillThreads } from './fill-threads.ts';
import { progressPrinter, throughput } from './progress.ts';
import { besideRunningHost } from './running-host.ts';

/** Rows that are printed one by one; the rest is counted. */
const SHOWN_MAX = 100;
const ROW_CHARS = 300;

/**
 * `agent-host audit replay [name] [--until <time|cursor>]`: rebuilds read models in a scratch schema and reports every
 * row that differs from the live one. Exit code 1 when any does. An interrupted one continues where it stopped.
 * @param program the file that each of several threads runs
 */
export async function auditReplay(config: Config, args: readonly string[], program: string): Promise<number> {
  const { values, words } = readArguments(args, operatorOptionsOf('audit replay'));
  const { json } = values;
  const [name] = words;
  const groups = groupsNamed(name);
  return await besideRunningHost(config, 'audit', async ({ log, pool, logger }) => {
    const { source, seals } = log;
    const until = await readUntil(values.until, source);
    const ours = { pool, source, seals, logger, until, version: await version() };
    const found = await withFillThreads(program, source.shards, async (threads) => {
      let differences = 0;
      for (const group of groups) {
        const shown = { json, shownMax: SHOWN_MAX - differences };
        differences += await auditGroup({ ...ours, group, threads }, shown);
      }
      return differences;
    });
    return found === 0 ? 0 : 1;
  });
}

/** Prints what differs, and how much was compared. Returns how many rows differ. */
async function auditGroup(
  options: Omit<AuditOptions, 'onProgress' | 'onDifference' | 'shownMax'>,
  { json, shownMax }: { readonly json: boolean | undefined; readonly shownMax: number },
): Promise<number> {
  const projection = options.group.name;
  const begun = performance.now();
  const progress = progressPrinter();
  const counts = { commits: 0, events: 0 };
  let rate = '';
  const { rows, differences, deletedSessions } = await audit({
    ...{ ...options, shownMax },
    onProgress: (applied) => {
      progress.show(applied);
      counts.commits += applied.commits;
      counts.events += applied.events;
      rate = ` (${throughput(counts, begun)})`;
    },
    onDifference: ({ table, side, row }) => {
      const shown = { projection, table, side, row: row.slice(0, ROW_CHARS) };
      print([shown], json, () => `${table}: ${side}: ${shown.row}\n`);
    },
  });
  progress.done();
  const seconds = secondsSince(begun);
  const text = `${projection}: ${rows} rows compared in ${seconds} s, ${differences} differ${rate}\n`;
  print(
    [{ projection, rows, differences, deletedSessions, seconds }],
    json,
    () => text + leftOut(projection, deletedSessions),
  );
  return differences;
}

/** The commits of a session that is deleted leave the log, so what its rows were made of cannot be replayed. */
function leftOut(projection: string, deletedSessions: number): string {
  if (deletedSessions === 0) return '';
  return `${projection}: sessions that were deleted meanwhile: ${deletedSessions}; their rows and the sums of their tenants were not compared\n`;
}

/** A time, or the cursor of a record: everything up to its commit, and in other streams up to its time. */
async function readUntil(text: string | undefined, source: CommitSource): Promise<ReplayEnd | null> {
  if (text === undefined) return null;
  const place = placeInCursor(text);
  if (place !== null) return await endAt(source, place, text);
  const ms = Date.parse(text);
  if (Number.isNaN(ms))
    throw new StartError('--until needs a time such as 2026-01-31T12:00:00Z, or the cursor of a record');
  return { ms, place };
}

/** A cursor from before the log was moved to more shards names the stream where its history was then. */
async function endAt(source: CommitSource, place: EventPlace, cursor: string): Promise<ReplayEnd> {
  const others = Array.from({ length: source.shards }, (_, shard) => shard).filter((shard) => shard !== place.shard);
  for (const shard of [place.shard, ...others]) {
    const ms = await timeAt(source, { ...place, shard }, cursor);
    if (ms !== null) return { ms, place: { ...place, shard } };
  }
  throw new StartError('--until names a cursor of which the log has no record');
}

/** Null: the stream has no such record. */
async function timeAt(
  source: CommitSource,
  { shard, position, inherited }: EventPlace,
  cursor: string,
): Promise<number | null> {
  if (shard >= source.shards || (await source.newest(shard, 'all')) < position) return null;
  const done = new AbortController();
  const following = { shard, kinds: 'all', after: position - 1, signal: done.signal, buffer: 1 } as const;
  for await (const [found] of source.follow(following)) {
    done.abort();
    if (found?.kind !== 'commit' || found.stored.position !== position) return null;
    // What a fork inherits is in another session than the one that the cursor is bound to.
    if (inherited === undefined && decodeCursor(found.stored.ref, cursor) === null) return null;
    return Date.parse(found.stored.commit.at);
  }
  return null;
}
