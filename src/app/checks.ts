import { delay } from '../lib/backoff.ts';
import { building } from '../projections/built.ts';
import type { Building } from '../projections/built.ts';
import { countParked } from '../projections/checkpoint.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { CommitSource } from '../streams/event-store.ts';
import type { ObjectStore } from '../drivers/objects/port.ts';
import type { ServersDown } from '../embedded/servers.ts';
import type { Check, Checks } from '../http/routes/host.ts';
import type { Role } from './roles.ts';
import { PROJECTIONS } from './projectors.ts';

export interface CheckDeps {
  readonly pool: ReadStore;
  readonly source: CommitSource;
  readonly objects: ObjectStore;
  /** Resolves when the log answers. */
  readonly streams: () => Promise<void>;
  /** Whether turns can be run or handed to someone who runs them. */
  readonly engine: () => Promise<void>;
  readonly down: () => ServersDown;
}

const WITHIN_MS = 2_000;

const DOWN = {
  database: 'the embedded Postgres has ended and is being started again',
  streams: 'the embedded nats-server has ended and is being started again',
};

/**
 * What a role cannot do without. Not the database, except for a projector: commands, turns and event streams continue
 * without it, and a node that leaves over it enlarges that outage.
 */
const NEEDED: Readonly<Record<Role, readonly (keyof Checks)[]>> = {
  commands: ['streams'],
  reads: ['streams'],
  engine: ['streams'],
  projector: ['streams', 'database'],
};

const BUILDING = 'the read models of this version are being built';

/** Whether everything that a node of these roles needs answers, and its pages have read models to come from. */
export function hasWhatItNeeds(roles: readonly Role[], checks: Checks): boolean {
  const isBuilt = checks.database.detail?.startsWith(BUILDING) !== true;
  const answer = roles.every((role) => NEEDED[role].every((dependency) => checks[dependency].ok));
  return answer && (isBuilt || !roles.includes('reads'));
}

/** Readiness: each dependency is asked, within a bound. Details are our own words, never an address or a secret. */
export async function readiness({ pool, source, objects, streams, engine, down }: CheckDeps): Promise<Checks> {
  const database = async (): Promise<string | undefined> => {
    const left = await building(pool, source, PROJECTIONS);
    if (left.length > 0) throw new NotReady(buildingText(left));
    const parked = await countParked(pool, PROJECTIONS);
    // No reason to send requests elsewhere: every node reads the same rows.
    return parked === 0 ? undefined : `the read models lack ${parked} parked ${parked === 1 ? 'commit' : 'commits'}`;
  };
  const [databaseCheck, engineCheck, streamsCheck, objectsCheck] = await Promise.all([
    check(database, down().postgres ? DOWN.database : 'the relational database does not answer'),
    check(engine, 'no worker can be reached'),
    check(streams, down().nats ? DOWN.streams : 'the stream store does not answer'),
    check(async () => await objects.check(), 'the object store cannot be written'),
  ]);
  return { database: databaseCheck, engine: engineCheck, streams: streamsCheck, objects: objectsCheck };
}

/** A dependency answers but lacks what is needed; the message is shown. */
class NotReady extends Error {}

function buildingText(left: readonly Building[]): string {
  const each = left.map(({ schema, percent }) =>
    percent === null
      ? `${schema} waits for a projector of this version, or agent-host migrate`
      : `${schema} ${percent} %`,
  );
  return `${BUILDING}: ${each.join(', ')}`;
}

/** What the probe resolves to is shown beside `ok`. */
async function check(probe: () => Promise<string | undefined | void>, failed: string): Promise<Check> {
  const settled = new AbortController();
  const refusal: Check = { ok: false, detail: failed };
  const late = delay(WITHIN_MS, settled.signal).then(() => refusal);
  const answered = probe().then(
    (detail): Check => (detail === undefined ? { ok: true } : { ok: true, detail: String(detail) }),
    (error: unknown): Check => (error instanceof NotReady ? { ok: false, detail: error.message } : refusal),
  );
  const found = await Promise.race([answered, late]);
  settled.abort();
  return found;
}
