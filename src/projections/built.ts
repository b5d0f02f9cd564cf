import { sql } from 'slonik';
import type { CommonQueryMethods } from 'slonik';
import { z } from 'zod';
import { delay } from '../lib/backoff.ts';
import type { Logger } from '../lib/logger.ts';
import { OutageLog } from '../lib/outage-log.ts';
import type { CommitSource } from '../streams/event-store.ts';
import { readCheckpoint } from './checkpoint.ts';
import type { ProjectionGroup } from './projection.ts';
import { isGone, isTableGone, reading } from './read-store/pool.ts';
import type { ReadStore } from './read-store/pool.ts';
import { UnbuiltReadModelsError } from './unavailable.ts';

/** However many reads arrive, the database is asked only once per interval whether a schema is built, ms. */
const ASKED_MS = 1_000;
/** How often a projector compares the checkpoints with what was newest, ms. */
const POLL_MS = 50;
const POLL_MS_MAX = 1_000;

/**
 * Which schemas hold everything that the log held when they were started. Until a schema does, its rows are incomplete
 * without showing what is missing, so nothing is read from it.
 */
export class BuiltModels {
  readonly #pool: ReadStore;
  readonly #built = new Set<string>();
  #asked: Promise<void> | null = null;
  #askedAt = Number.NEGATIVE_INFINITY;

  constructor(pool: ReadStore) {
    this.#pool = pool;
  }

  /** A projector of this process or another has recorded it. */
  note(schema: string): void {
    this.#built.add(schema);
  }

  /** The tables are gone: their replacements have to be filled first. */
  forget(): void {
    this.#built.clear();
    this.#askedAt = Number.NEGATIVE_INFINITY;
  }

  /** @throws UnbuiltReadModelsError, UnavailableError (database) */
  async require(schemas: readonly string[]): Promise<void> {
    if (this.#lacking(schemas).length === 0) return;
    if (performance.now() - this.#askedAt >= ASKED_MS) await this.#ask();
    if (this.#lacking(schemas).length > 0) throw new UnbuiltReadModelsError();
  }

  /** Resolves when all of them are built, or the time has passed, or the database does not answer. False: not all are. */
  async settled(schemas: readonly string[], withinMs: number): Promise<boolean> {
    const deadline = performance.now() + withinMs;
    try {
      while (this.#lacking(schemas).length > 0) {
        await this.#ask();
        if (performance.now() >= deadline) break;
        if (this.#lacking(schemas).length > 0) await delay(POLL_MS);
      }
    } catch {
      // Reads say so.
    }
    return this.#lacking(schemas).length === 0;
  }

  #lacking(schemas: readonly string[]): readonly string[] {
    return schemas.filter((schema) => !this.#built.has(schema));
  }

  async #ask(): Promise<void> {
    this.#asked ??= readBuilt(this.#pool)
      .then((schemas) => {
        for (const schema of schemas) this.#built.add(schema);
        this.#askedAt = performance.now();
      })
      .finally(() => (this.#asked = null));
    await this.#asked;
  }
}

const schemaRow = z.object({ schema: z.string() });

async function readBuilt(pool: CommonQueryMethods): Promise<readonly string[]> {
  try {
    return await reading(
      async () =>
        await pool.anyFirst(sql.type(schemaRow)`select schema from public.read_model where built_at is not null`),
    );
  } catch (error) {
    // No node of this version has migrated the database yet.
    if (isTableGone(error)) return [];
    throw error;
  }
}

/**
 * The pool for the queries of some groups, or the queries themselves: each call is refused until the schemas are built.
 * @throws UnbuiltReadModelsError by each of its methods, which must be asynchronous
 */
export function builtOnly<T extends object>(reads: T, built: BuiltModels, schemas: readonly string[]): T {
  return new Proxy(reads, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name, target);
      if (typeof value !== 'function') return value;
      return async (...args: readonly unknown[]): Promise<unknown> => {
        await built.require(schemas);
        try {
          const answer: unknown = await Reflect.apply(value, target, args);
          return answer;
        } catch (error) {
          if (isGone(error)) built.forget();
          throw error;
        }
      };
    },
  });
}

export interface BuildingOptions {
  readonly pool: ReadStore;
  readonly source: CommitSource;
  readonly groups: readonly ProjectionGroup[];
  readonly logger: Logger;
  readonly onBuilt: (schema: string) => void;
  readonly signal: AbortSignal;
}

/**
 * Records of each group when its rows have reached what was newest in the log at the beginning of this, whichever process
 * applies the commits.
 */
export async function recordBuilt(options: BuildingOptions): Promise<void> {
  await Promise.all(options.groups.map(async (group) => await recordGroup(group, options)));
}

async function recordGroup(group: ProjectionGroup, options: BuildingOptions): Promise<void> {
  const { pool, source, logger, onBuilt, signal } = options;
  const outage = new OutageLog(logger, `the record that ${group.schema} is built`);
  let newest: readonly number[] | null = null;
  for (let waitMs = POLL_MS; !signal.aborted; waitMs = Math.min(2 * waitMs, POLL_MS_MAX)) {
    try {
      if ((await readBuilt(pool)).includes(group.schema)) return onBuilt(group.schema);
      newest ??= await newestOf(group, source);
      if (await hasReached(pool, group, newest)) {
        await markBuilt(pool, group.schema);
        return onBuilt(group.schema);
      }
      outage.worked();
    } catch (error) {
      outage.failed(error);
    }
    await delay(waitMs, signal);
  }
}

async function newestOf({ kinds }: ProjectionGroup, source: CommitSource): Promise<readonly number[]> {
  const shards = Array.from({ length: source.shards }, (_, shard) => shard);
  return await Promise.all(shards.map(async (shard) => await source.newest(shard, kinds)));
}

async function hasReached(
  pool: CommonQueryMethods,
  { schema }: ProjectionGroup,
  newest: readonly number[],
): Promise<boolean> {
  for (const [shard, position] of newest.entries()) {
    if (position > 0 && (await readCheckpoint(pool, schema, shard)) < position) return false;
  }
  return true;
}

/**
 * On disk when it returns, also where `synchronous_commit` is off: it is recorded once, so a Postgres that was killed a moment
 * later and lost it would leave the read model unbuilt until the next start of a projector.
 */
export async function markBuilt(pool: CommonQueryMethods, schema: string): Promise<void> {
  await pool.query(sql.unsafe`
    with durable as materialized (select set_config('synchronous_commit', 'on', true))
    insert into public.read_model (schema, built_at) select ${schema}, now() from durable
    on conflict (schema) do update set built_at = coalesce(read_model.built_at, excluded.built_at)`);
}

/** How far the schemas that are not built yet have come. */
export interface Building {
  readonly schema: string;
  /** Of what the log holds now, 0 to 100, rounded down; null: the tables do not exist. */
  readonly percent: number | null;
}

/** Empty: all are built. @throws when the database does not answer */
export async function building(
  pool: ReadStore,
  source: CommitSource,
  groups: readonly ProjectionGroup[],
): Promise<readonly Building[]> {
  const built = await readBuilt(pool);
  const left = groups.filter(({ schema }) => !built.includes(schema));
  return await Promise.all(
    left.map(async (group) => ({ schema: group.schema, percent: await percentOf(pool, source, group) })),
  );
}

async function percentOf(pool: ReadStore, source: CommitSource, group: ProjectionGroup): Promise<number | null> {
  const newest = await newestOf(group, source);
  try {
    let read = 0;
    for (const [shard, position] of newest.entries())
      read += Math.min(position, await readCheckpoint(pool, group.schema, shard));
    const all = newest.reduce((sum, position) => sum + position, 0);
    return all === 0 ? 100 : Math.floor((100 * read) / all);
  } catch (error) {
    if (isTableGone(error)) return null;
    throw error;
  }
}

const tableRow = z.object({ schema: z.string(), table: z.string() });

/** Tables that can hold what tenants wrote, in schemas that other versions of the program fill beside those of these groups. */
export async function tablesOfOthers(
  connection: CommonQueryMethods,
  groups: readonly ProjectionGroup[],
): Promise<readonly z.infer<typeof tableRow>[]> {
  const own = sql.array(
    groups.map(({ schema }) => schema),
    'text',
  );
  return await connection.any(sql.type(tableRow)`
    select schemaname::text as schema, tablename::text as table from pg_tables
    join public.read_model on schema = schemaname
    where tablename <> 'checkpoint' and not schema = any(${own}) order by 1, 2`);
}
