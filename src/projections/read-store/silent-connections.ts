import { Client } from 'pg';
import { z } from 'zod';
import { CONNECT_MS, socketOf } from './connection.ts';

/** How often the connections are looked at, ms. */
const LOOK_MS = 5_000;
/**
 * After each so many looks in a row at which a statement had no byte of an answer the database is asked whether it works on it:
 * first after 10 to 20 s. Looks, not time: what came while this process stood still has not been read yet.
 */
const SILENT_LOOKS = 3;
/** So long the database has not worked on a statement that is not just being sent or answered, s. */
const IDLE_SECONDS = 5;
/** Between what both sides take for the age of a connection, s: it has to be let in first. */
const AGE_SECONDS = CONNECT_MS / 1_000 + 5;

interface Seen {
  /** ms since 1970 */
  readonly openedAt: number;
  bytesRead: number;
  /** Looks in a row at which it has waited, and nothing more had been read. */
  looks: number;
}

/**
 * Ends connections that lead nowhere. Where the network or the machine of the database is lost after a statement was sent,
 * the system repeats it for a quarter of an hour before it says so, also while a new connection would be answered at once;
 * and how long a statement may take says nothing, for that of a projector takes as long as what it deletes is large. So the
 * database is asked, over a connection of its own, what it does: nothing for a statement that has waited for long means that
 * the statement or its answer was lost. Then its session is ended, too, which may hold a lock. A database that does not
 * answer, or works, is waited for.
 */
class SilentConnections {
  readonly #seen = new Map<Client, Seen>();
  #timer: NodeJS.Timeout | undefined;
  #isAsking = false;

  /** Until it ends. */
  watch(client: Client): void {
    if (socketOf(client) === null) return;
    this.#seen.set(client, { openedAt: Date.now(), bytesRead: 0, looks: 0 });
    client.connection.once('end', () => this.#forget(client));
    this.#timer ??= setInterval(() => void this.#look(), LOOK_MS).unref();
  }

  #forget(client: Client): void {
    this.#seen.delete(client);
    if (this.#seen.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  async #look(): Promise<void> {
    const silent: Asked[] = [];
    for (const [client, seen] of this.#seen) {
      if (isSilent(client, seen)) seen.looks++;
      else Object.assign(seen, { bytesRead: socketOf(client)?.bytesRead ?? 0, looks: 0 });
      if (seen.looks > 0 && seen.looks % SILENT_LOOKS === 0) silent.push({ client, seen });
    }
    if (silent.length === 0 || this.#isAsking) return;
    this.#isAsking = true;
    try {
      const byServer = [...Map.groupBy(silent, serverOf).values()];
      await Promise.all(byServer.map(endLost));
    } finally {
      this.#isAsking = false;
    }
  }
}

/** A long statement that is still on its way over a slow network is not one that the database does not work on. */
function isSilent(client: Client, { bytesRead }: Seen): boolean {
  const socket = socketOf(client);
  return isWaiting(client) && socket?.bytesRead === bytesRead && socket.writableLength === 0;
}

async function endLost(silent: readonly Asked[]): Promise<void> {
  // A database that cannot be asked is none to connect to instead.
  const lost = await lostOf(silent).catch(() => []);
  // What came meanwhile is an answer.
  for (const { client, seen } of lost) if (isSilent(client, seen)) client.connection.stream.destroy(lostError());
}

export const silentConnections = new SilentConnections();

interface Asked {
  readonly client: Client;
  readonly seen: Seen;
}

const ANSWER_MS = 5_000;

/**
 * Of its own sessions, those that do nothing or are not there; they are ended. A session is known by its process and its age,
 * since another server has its own numbers. Behind a pooler, which gives numbers of its own, nothing can be said.
 */
const LOST = `
  select asked.pid, pg_terminate_backend(session.pid)
  from unnest($1::int[], $2::float8[]) as asked (pid, age)
  left join pg_stat_activity as session on session.pid = asked.pid
    and abs(extract(epoch from clock_timestamp() - session.backend_start) - asked.age) < ${AGE_SECONDS}
  where pg_backend_pid() = $3 and (session.pid is null
    or (session.state like 'idle%' and session.state_change < clock_timestamp() - interval '${IDLE_SECONDS} s'))`;
const lostRows = z.array(z.object({ pid: z.number() }));

/** Asks the server of these connections. @throws when it cannot be asked */
async function lostOf(asked: readonly Asked[]): Promise<readonly Asked[]> {
  const [first] = asked;
  if (first === undefined) return [];
  const { host, port, user, password, database, ssl } = first.client;
  const own = new Client({
    ...{ host, port, user, password, database, ssl },
    ...{ connectionTimeoutMillis: CONNECT_MS, query_timeout: ANSWER_MS },
  });
  own.on('error', () => undefined);
  await own.connect();
  try {
    const ages = asked.map(({ seen }) => (Date.now() - seen.openedAt) / 1_000);
    const { rows } = await own.query(LOST, [asked.map(({ client }) => pidOf(client)), ages, pidOf(own)]);
    const pids = new Set(lostRows.parse(rows).map(({ pid }) => pid));
    return asked.filter(({ client }) => pids.has(pidOf(client)));
  } finally {
    await own.end();
  }
}

function serverOf({ client: { host, port, user } }: Asked): string {
  return `${user} ${host} ${port}`;
}

/** What the driver knows and has no type for: the process of the server, and whether that owes an answer (pg 8). */
function pidOf(client: Client): number {
  return Number(Reflect.get(client, 'processID'));
}

function isWaiting(client: Client): boolean {
  return Reflect.get(client, 'readyForQuery') === false;
}

function lostError(): Error {
  const message = 'the database does not work on the statement: it or its answer was lost';
  return Object.assign(new Error(message), { code: 'ETIMEDOUT' });
}
