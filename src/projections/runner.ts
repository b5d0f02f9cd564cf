import { sql } from 'slonik';
import type { DatabasePool, DatabasePoolConnection, DatabaseTransactionConnection } from 'slonik';
import { z } from 'zod';
import { optional } from '../domain/kernel/optional.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import type { Logger } from '../lib/logger.ts';
import { BackgroundTask } from '../lib/background-task.ts';
import type { OnRound, Round } from '../lib/background-task.ts';
import type { OutageLog } from '../lib/outage-log.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import { commitPlace, lastPosition } from '../streams/event-store.ts';
import type { CommitSource, FollowedCommit } from '../streams/event-store.ts';
import type { RowSeals } from '../streams/row-seals.ts';
import { subjectOf } from '../streams/subjects.ts';
import { FencedError, holdGroup, moveCheckpoint, readCheckpoint } from './checkpoint.ts';
import { park as noteParked, retryParked } from './parked.ts';
import { BetweenBatches } from './between-batches.ts';
import { BATCH_MAX, Gathering } from './gathering.ts';
import { projected } from './projected.ts';
import type { DeferredWork, ProjectionGroup, WriteConnection } from './projection.ts';
import { BY_KEY, NOTICES_THE_GONE } from './read-store/long-work.ts';
import { isGone, isUnavailable } from './read-store/pool.ts';
import { SharedConnection } from './shared-connection.ts';
import type { HeldConnection } from './shared-connection.ts';

/**
 * Of a connection that leads. A commit takes as long as the session that it deletes is large: cancelled and restarted, it
 * would never be applied. A process that stalls within a transaction loses it nevertheless.
 */
const LEADING = new Map([
  ['statement_timeout', '0'],
  ['transaction_timeout', '0'],
  ['idle_session_timeout', '0'],
  ...NOTICES_THE_GONE,
  ...BY_KEY,
]);

/** How often a standby checks whether the leading projector is gone. */
const STANDBY_MS = 400;
/** So long others wait for a check to end: a connection that is dead without having been ended may never answer. */
const CHECK_MS = 2_000;
/** One that has lost its connection waits longer than that: a standby, where there is one, is likely to be in better shape. */
const RETRY_MS = { baseMs: 500, capMs: 2_000 };

export interface ProjectorOptions {
  readonly group: ProjectionGroup;
  readonly shard: number;
  readonly pool: DatabasePool;
  /** Over which it writes; absent: a connection of its own. */
  readonly shared?: SharedConnection;
  readonly source: CommitSource;
  readonly seals: RowSeals;
  readonly logger: Logger;
  /** Restores the database after it has been dropped, until the signal aborts. */
  readonly restore: (signal: AbortSignal) => Promise<void>;
  /** Called after each transaction with how far the group's rows now reach. */
  readonly onProgress: (progress: { schema: string; shard: number; position: number }) => void;
  readonly onParked?: () => void;
  readonly onRound?: OnRound;
  /** Runs the checks of projectors that share a pool one after the other; absent: each when it likes. */
  readonly inTurn?: InTurn;
}

/** A connection over which projectors write that share it. */
export function writesOf(pool: DatabasePool): SharedConnection {
  return new SharedConnection(pool, LEADING);
}

export type InTurn = (work: () => Promise<void>) => Promise<void>;

/**
 * Feeds one group of read models from one stream.
 *
 *   standby (another process holds the advisory lock) → leading (reads on from the checkpoint, a transaction a batch)
 *     → standby (database away, fenced, stopped) …
 */
export class Projector {
  readonly #options: ProjectorOptions;
  readonly #task: BackgroundTask;
  readonly #gathering: Gathering;
  readonly #writes: SharedConnection;
  #position = 0;

  constructor(options: ProjectorOptions) {
    this.#options = options;
    const { group, shard, pool, shared, logger, onRound } = options;
    this.#writes = shared ?? writesOf(pool);
    this.#gathering = new Gathering(group);
    this.#task = new BackgroundTask({
      ...{ name: 'projector', what: `the projector of ${group.name} ${shard}`, logger, onRound },
      work: async (round) => await this.#run(round),
      pauseMs: (failures) => (failures === 0 ? STANDBY_MS : backoffMs(failures, RETRY_MS)),
      onError: (error, outage) => this.#failed(error, outage),
    });
  }

  /** How far this process has applied the stream; 0 while it is on standby. */
  get position(): number {
    return this.#position;
  }

  /** Somebody waits for the rows of a commit that has been stored. */
  hurry(): void {
    this.#gathering.hurry();
  }

  start(): void {
    this.#task.start();
  }

  async stop(): Promise<void> {
    await this.#task.stop();
  }

  async #run(round: Round): Promise<void> {
    const { inTurn = async (work): Promise<void> => await work() } = this.#options;
    const leading = new AbortController();
    try {
      let working = Promise.resolve();
      const leads = Promise.withResolvers<void>();
      // Outside of the turns of all: where one of those that share a connection has no answer, the others would have none.
      await this.#writes.inTurn(async () => {
        await inTurn(async () => {
          if (round.signal.aborted) return;
          const answered = new AbortController();
          working = this.#leadIfFree(
            { ...round, signal: AbortSignal.any([leading.signal, round.signal]) },
            leads.resolve,
          );
          try {
            await Promise.race([leads.promise, working, delay(CHECK_MS, answered.signal)]);
          } finally {
            answered.abort();
          }
        });
        await Promise.race([leads.promise, working]);
      });
      await working;
    } catch (error) {
      if (isGone(error)) await this.#restore(round);
      throw error;
    } finally {
      // When its connection dies, `connect` rejects and leaves its callback where it is: waiting for commits.
      leading.abort();
      this.#position = 0;
    }
  }

  async #leadIfFree(round: Round, onLeading: () => void): Promise<void> {
    const { group, shard } = this.#options;
    const name = `${group.schema}.${shard}`;
    await this.#writes.hold(async (held) => {
      if (!(await held.use(async (connection) => await lock(connection, name)))) return;
      onLeading();
      try {
        await held.settle();
        await this.#lead(held, round);
      } finally {
        await unlock(held, name);
      }
    });
  }

  #failed(error: unknown, outage: OutageLog): void {
    const { group, shard, logger } = this.#options;
    if (isPassing(error)) outage.failed(error);
    else logger.error({ err: error, group: group.name, shard }, 'the projector starts again');
  }

  async #restore({ signal, failed }: Round): Promise<void> {
    try {
      await this.#options.restore(signal);
    } catch (error) {
      failed(error);
    }
  }

  async #lead(held: HeldConnection, { signal, worked }: Round): Promise<void> {
    const { group, shard, source } = this.#options;
    this.#position = await held.use(async (connection) => await readCheckpoint(connection, group.schema, shard));
    const options = { shard, kinds: group.kinds, after: this.#position, signal, buffer: BATCH_MAX };
    signal.addEventListener('abort', () => this.hurry(), { once: true });
    this.#report(worked);
    const parked = { ...this.#options, position: this.#position };
    const mended = await held.use(async (connection) => await retryParked(connection, parked));
    if (mended > 0) this.#report(worked);
    // What a projector before this one has put off is still to be done.
    const deferred = new BetweenBatches(group.deferred?.(group.schema, shard));
    const step = async (work: DeferredWork): Promise<boolean> => {
      try {
        return await held.use(async (connection) => await work.step(connection, this.#position));
      } catch (error) {
        if (isPassing(error)) throw error;
        // As a commit that cannot be applied: it never stops the line, and is tried again when more is put off.
        this.#options.logger.error({ err: error, group: group.name, shard }, 'ALARM: what was put off cannot be done');
        return false;
      }
    };
    for await (const batch of deferred.whileWaiting(source.follow(options), step)) {
      const { position, tookMs } = await held.use(async (connection) => {
        const begun = performance.now();
        const reached = await applyBatch(connection, {
          ...this.#options,
          schema: group.schema,
          from: this.#position,
          batch,
          onDeferred: () => deferred.resume(),
        });
        return { position: reached, tookMs: performance.now() - begun };
      });
      this.#position = position;
      this.#report(worked);
      await deferred.during(this.#gathering.after(batch.length, tookMs), step);
    }
  }

  #report(worked: () => void): void {
    worked();
    const { group, shard, onProgress } = this.#options;
    onProgress({ schema: group.schema, shard, position: this.#position });
  }
}

export interface BatchOptions {
  readonly group: ProjectionGroup;
  readonly schema: string;
  readonly shard: number;
  readonly from: number;
  readonly batch: readonly FollowedCommit[];
  readonly seals: RowSeals;
  readonly logger: Logger;
  readonly onParked?: () => void;
  /** Something was put off: the group's `deferred` has work. */
  readonly onDeferred?: () => void;
}

/**
 * Applies a batch in one transaction. If its data cannot be applied, commit by commit, and the one that cannot is
 * parked with an alarm: a poison event never stops the line. Returns the new position.
 */
export async function applyBatch(connection: WriteConnection, options: BatchOptions): Promise<number> {
  const { batch, from } = options;
  try {
    return await applyTogether(connection, options);
  } catch (error) {
    if (isPassing(error)) throw error;
    if (batch.length === 1) return await park(connection, options, error);
    let position = from;
    for (const followed of batch)
      position = await applyBatch(connection, { ...options, from: position, batch: [followed] });
    return position;
  }
}

/** Nothing is wrong with the commits: another projector has them, or the database or a key cannot be reached. */
function isPassing(error: unknown): boolean {
  return error instanceof FencedError || isUnavailableError(error, 'streams') || isUnavailable(error);
}

async function applyTogether(connection: WriteConnection, options: BatchOptions): Promise<number> {
  const { group, schema, shard, from, batch, seals, onDeferred } = options;
  const commits = projected(batch);
  await seals.prepare(commits.map(({ ref }) => ref.tenant));
  const to = lastPosition(batch) ?? from;
  await connection.transaction(async (transaction) => {
    await holdGroup(transaction, schema, 'shared');
    await moveCheckpoint(transaction, schema, { shard, from, to });
    if (commits.length > 0) await group.apply(transaction, { schema, seals, ...optional({ onDeferred }) }, commits);
  });
  await faultPoint('projection.applied');
  return to;
}

async function park(connection: WriteConnection, options: BatchOptions, error: unknown): Promise<number> {
  const { schema, shard, from, batch, logger } = options;
  const [followed] = batch;
  if (followed === undefined) return from;
  const { ref, position } = commitPlace(followed);
  const subject = subjectOf(ref);
  await connection.transaction(async (transaction: DatabaseTransactionConnection) => {
    await holdGroup(transaction, schema, 'shared');
    await moveCheckpoint(transaction, schema, { shard, from, to: position });
    await noteParked(transaction, schema, { shard, followed, error });
  });
  // Not before: the transaction may find that another projector has applied this commit, and then nothing is wrong with it.
  logger.error({ err: error, schema, shard, position, subject }, 'ALARM: a commit cannot be projected and is parked');
  options.onParked?.();
  return position;
}

async function lock(connection: DatabasePoolConnection, name: string): Promise<boolean> {
  const row = z.object({ locked: z.boolean() });
  return await connection.oneFirst(
    sql.type(row)`select pg_try_advisory_lock(hashtextextended(${`projector.${name}`}, 0)) as locked`,
  );
}

async function unlock(held: HeldConnection, name: string): Promise<void> {
  const statement = sql.unsafe`select pg_advisory_unlock(hashtextextended(${`projector.${name}`}, 0))`;
  try {
    await held.use(async (connection) => await connection.query(statement));
  } catch {
    // The connection is gone, and the lock with it.
  }
}
