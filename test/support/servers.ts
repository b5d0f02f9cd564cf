import { afterAll, beforeAll } from 'vitest';
import { openLog } from './jetstream.ts';
import type { TestLog } from './jetstream.ts';
import { TestNats } from './nats.ts';
import { TestPostgres } from './postgres.ts';

/** Servers of a test file: started before its first test, ended after its last. Their members are there in tests only. */
export interface TestServers {
  readonly nats: TestNats;
  readonly log: TestLog;
  readonly postgres: TestPostgres;
}

/** nats-server with the log's streams, and Postgres where the file says so. */
export function useServers(wanted: { readonly postgres?: boolean } = {}): TestServers {
  const disposables = new AsyncDisposableStack();
  const started: { nats?: TestNats; log?: TestLog; postgres?: TestPostgres } = {};
  beforeAll(async () => {
    const postgres = wanted.postgres === true ? TestPostgres.start() : undefined;
    started.nats = disposables.use(await TestNats.start());
    if (postgres !== undefined) started.postgres = disposables.use(await postgres);
    started.log = disposables.use(await openLog(started.nats.url));
  });
  afterAll(async () => {
    await disposables.disposeAsync();
  });
  return {
    get nats() {
      return there(started.nats);
    },
    get log() {
      return there(started.log);
    },
    get postgres() {
      return there(started.postgres);
    },
  };
}

function there<T>(part: T | undefined): T {
  if (part === undefined) throw new Error('the server has not been started');
  return part;
}
