import { delay } from '../lib/backoff.ts';
import { pingReadStore } from '../projections/read-store/pool.ts';
import type { ReadStore } from '../projections/read-store/pool.ts';
import type { ObjectStore } from '../drivers/objects/port.ts';
import type { Check, Checks } from '../http/routes/host.ts';

export interface CheckedParts {
  readonly pool: ReadStore;
  readonly objects: ObjectStore;
  /** Resolves when the log answers. */
  readonly streams: () => Promise<void>;
  /** Whether turns can be run or handed to someone who runs them. */
  readonly engine: () => Promise<void>;
}

const WITHIN_MS = 2_000;

/** Readiness: each dependency is asked, within a bound. Details are our own words: never an address or a secret. */
export async function readiness({ pool, objects, streams, engine }: CheckedParts): Promise<Checks> {
  const database = async (): Promise<void> => {
    await pingReadStore(pool);
  };
  const [databaseCheck, engineCheck, streamsCheck, objectsCheck] = await Promise.all([
    check(database, 'the relational database does not answer'),
    check(engine, 'no worker can be reached'),
    check(streams, 'the stream store does not answer'),
    check(async () => await objects.check(), 'the object store cannot be written'),
  ]);
  return { database: databaseCheck, engine: engineCheck, streams: streamsCheck, objects: objectsCheck };
}

async function check(probe: () => Promise<void>, detail: string): Promise<Check> {
  const settled = new AbortController();
  const late = delay(WITHIN_MS, settled.signal).then(() => false);
  const answered = probe().then(
    () => true,
    () => false,
  );
  const ok = await Promise.race([answered, late]);
  settled.abort();
  return ok ? { ok } : { ok, detail };
}
