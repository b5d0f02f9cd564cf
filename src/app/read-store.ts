import { checkSchema, migrate, MigrationBlockedError, NewerSchemaError } from '../projections/read-store/migrate.ts';
import { isGone, isUnavailable, openReadStore } from '../projections/read-store/pool.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import { SharedReads } from '../projections/read-store/tenant-reads.ts';
import type { TenantReads } from '../projections/read-store/tenant-reads.ts';
import type { Logger } from '../lib/logger.ts';
import type { Config } from './config.ts';
import type { LogPorts } from './log.ts';
import type { Metrics } from './metrics/metrics.ts';
import { restoring, writingConnections } from './projectors.ts';
import type { Stack } from '../lib/stack.ts';
import { StartError } from '../lib/start-error.ts';

/** Pages and lists of many clients at once, with what the node asks for itself. */
const READING = 20;
/** What a node asks for itself: readiness, progress, candidates of its engine, figures of the installation. */
const OWN = 4;
/** All processes of one Host together, below the 100 that Postgres has by default: commands need some, too. */
const TOGETHER = 90;
/** What one of many is left with. */
const READING_LEAST = 5;

/** How many connections a node reads with, or one of so many processes of a Host that serve requests. */
function readingOf(servingProcesses: number | undefined, shards: number): number {
  if (servingProcesses === undefined) return READING;
  const share = Math.floor((TOGETHER - writingConnections(shards) - OWN) / servingProcesses);
  return Math.min(READING, Math.max(READING_LEAST, share));
}

/**
 * A node's maximum of connections, of a log of so many shards. A projector holds those that it writes over where it leads,
 * as long as it does; where another leads, while it checks. @throws StartError
 */
export function poolSize({ databaseConnections: given, servingProcesses, roles }: Config, shards: number): number {
  const isReading = roles.includes('commands') || roles.includes('reads');
  const leading = roles.includes('projector') ? writingConnections(shards) : 0;
  const size = given ?? leading + (isReading ? readingOf(servingProcesses, shards) : OWN);
  if (leading === 0 || size >= leading + OWN) return size;
  throw new StartError(
    `AGENT_HOST_DATABASE_CONNECTIONS is ${size}, and a projector of ${shards} shards needs ${leading + OWN}; set it to that or more, or leave it unset`,
  );
}

/** Of these, the reads of tenants have their own, so that what the node asks for itself never waits behind them. */
function sharesOf(config: Config, shards: number): { readonly own: number; readonly reading: number } {
  const leading = config.roles.includes('projector') ? writingConnections(shards) : 0;
  const left = poolSize(config, shards) - leading;
  const own = Math.min(OWN, Math.floor(left / 2));
  return { own: leading + own, reading: left - own };
}

/** How long the database lets a page's statement run, ms. */
const READ_STATEMENT_MS = 10_000;
/** How long a read waits for the tenant's others to free a connection, ms. */
const READ_WAIT_MS = 5_000;
/** Reads of one tenant that wait at a time. */
const READS_WAITING_MAX = 1_000;

interface PoolOptions {
  readonly databaseUrl: string;
  readonly config: Config;
  readonly logger: Logger;
  /** Present: the database is in this process. */
  readonly memory?: object | undefined;
}

/**
 * Opens the pool for the Host's own work. A projector brings the database up to date first; the other roles start on
 * what is there, and what needs more answers 503 until then.
 * @param isUpToDate what `checkSchema` said before the log was there; false: or could not say
 * @throws StartError
 */
export async function openPool(
  options: PoolOptions,
  log: LogPorts,
  { metrics, isUpToDate }: { readonly metrics: Metrics; readonly isUpToDate: Promise<boolean> },
): Promise<ReadStore> {
  const { databaseUrl, config } = options;
  const isProjector = config.roles.includes('projector');
  const { own } = sharesOf(config, log.source.shards);
  const prepare = async (): Promise<void> => {
    // Most starts find nothing to do, and take no lock.
    if (!(await isUpToDate)) await (isProjector ? migrate(databaseUrl) : checkSchema(databaseUrl));
  };
  try {
    await prepare().catch(async (error: unknown) => await withoutDatabase(error, options, log));
  } catch (cause) {
    throw databaseRefusal(cause);
  }
  return await openReadStore({
    url: databaseUrl,
    maximumConnections: own,
    // What takes a lock or changes a setting undoes it itself: a projector that stands by asks for its lock more than twice a
    // second, for each read model and stream, and a reset would be another statement each time.
    leavesNothing: true,
    // Connections to a database in this process share its only session.
    prepares: options.memory === undefined,
    onStatement: () => metrics.statements.inc(),
  });
}

/** What the person at the terminal reads of a database that cannot be brought up to date. */
export function databaseRefusal(cause: unknown): StartError {
  if (cause instanceof NewerSchemaError || cause instanceof MigrationBlockedError)
    return new StartError(cause.message, { cause });
  return new StartError(
    `the database of DATABASE_URL cannot be used (${reasonOf(cause)}); check the address, the credentials and that it runs`,
    { cause },
  );
}

/** Opens the connections that serve the reads of tenants. */
export async function openReads(
  { databaseUrl, config }: PoolOptions,
  { source: { shards } }: LogPorts,
  { metrics, stack }: { readonly metrics: Metrics; readonly stack: Stack },
): Promise<TenantReads> {
  const { reading } = sharesOf(config, shards);
  const pool = await openReadStore({
    url: databaseUrl,
    maximumConnections: reading,
    statementMs: READ_STATEMENT_MS,
    leavesNothing: true,
    onStatement: () => metrics.statements.inc(),
  });
  stack.defer('reads', async () => await pool.end());
  return new SharedReads({
    pool,
    connections: reading,
    statementMs: READ_STATEMENT_MS,
    waitMs: READ_WAIT_MS,
    waitingMax: READS_WAITING_MAX,
    onTurn: (waitedMs) => metrics.readWaits.observe(waitedMs / 1000),
    onRefused: () => metrics.refusals.inc({ reason: 'reads' }),
  });
}

/**
 * A projector makes a database that is missing. Nodes of the other roles continue while it is down, so they start
 * without it, too: what they write is in the log, what they read answers 503 until then.
 */
async function withoutDatabase(error: unknown, options: PoolOptions, log: LogPorts): Promise<void> {
  const { databaseUrl, config, logger } = options;
  const isProjector = config.roles.includes('projector');
  if (error instanceof NewerSchemaError || error instanceof MigrationBlockedError) throw error;
  if (isProjector && isGone(error)) await restoring(databaseUrl, log, logger)(new AbortController().signal);
  else if (isProjector || !isUnavailable(error)) throw error;
  else logger.warn({ reason: reasonOf(error) }, 'the database is away: pages answer 503 until it is back');
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? (error.message.split('\n')[0] ?? '') : 'unknown reason';
}
