import { createPgDriverFactory } from '@slonik/pg-driver';
import { Client } from 'pg';
import { createPool, SchemaValidationError } from 'slonik';
import type { DatabasePool, Driver, DriverFactory, Interceptor } from 'slonik';
import { ReadTooLongError } from '../unavailable.ts';
import { isUnavailableError, UnavailableError } from '../../lib/unavailable.ts';
import { SILENCE_MS, socketOf } from './connection.ts';
import { silentConnections } from './silent-connections.ts';
import { tlsOf } from './tls.ts';

/** The pool of connections, by its own name: only the read side knows which library provides it. */
export type ReadStore = DatabasePool;

export interface ReadStoreOptions {
  readonly url: string;
  readonly maximumConnections: number;
  /** For one statement, until the database cancels it; 30 s by default. */
  readonly statementMs?: number;
  /** For an idle transaction, until the database ends its connection; 60 s by default. */
  readonly idleInTransactionMs?: number;
  /** Its users leave nothing behind in a session: a connection goes back without being reset, and without that statement. */
  readonly leavesNothing?: boolean;
  /**
   * Its connections prepare what has a name (`prepared`), as long as they are open. Only with `leavesNothing`: a reset drops
   * what the client takes to be there. Not where connections share a session.
   */
  readonly prepares?: boolean;
  /** Called with each statement before it runs: for figures, and for tests of what the database is asked. */
  readonly onStatement?: (statement: Statement) => void;
}

/** A statement as it goes to the database. */
export interface Statement {
  readonly sql: string;
  readonly values: readonly unknown[];
}

/** The only place that opens connections to Postgres. Every bound is written here. */
export async function openReadStore(options: ReadStoreOptions): Promise<ReadStore> {
  const telling: Interceptor = {
    name: 'tell-statements',
    beforeQueryExecution: (_context, statement) => {
      options.onStatement?.(statement);
      return null;
    },
  };
  const { url, ...tls } = tlsOf(options.url);
  return await createPool(url, {
    ...tls,
    // Positions are sequences of a stream: far below 2^53, and numbers everywhere else.
    typeParsers: [{ name: 'int8', parse: Number }],
    driverFactory: whenNeeded(createPgDriverFactory()),
    captureStackTrace: false,
    // One attempt, with the time for a node that is short of processor time: a connection takes several turns of the event
    // loop on both sides. With 2 s each, two attempts in a row failed where four busy processes shared the core.
    connectionRetryLimit: 0,
    connectionTimeout: 10_000,
    idleTimeout: 30_000,
    idleInTransactionSessionTimeout: options.idleInTransactionMs ?? 60_000,
    maxPoolSize: options.maximumConnections,
    minPoolSize: 0,
    queryRetryLimit: 0,
    statementTimeout: options.statementMs ?? 30_000,
    transactionRetryLimit: 2,
    interceptors: [
      telling,
      checkingRows,
      ...(options.prepares === true && options.leavesNothing === true ? [] : [unprepared]),
    ],
    ...(options.leavesNothing === true ? { resetConnection: async () => await Promise.resolve() } : {}),
  });
}

const unprepared: Interceptor = {
  name: 'unprepared',
  transformQuery: (_context, { sql, values }) => ({ sql, values }),
};

/**
 * The driver asks for the types over a connection of its own and listens for no error of it (slonik 49.10): one that is cut
 * between its answer and its end would end the process. So every connection has a listener from the moment it is opened;
 * its user is told by the statement that fails. Nor does the driver let the system ask whether the database is there.
 */
const connect: unknown = Reflect.get(Client.prototype, 'connect');
Reflect.set(Client.prototype, 'connect', function heard(this: Client, ...args: readonly unknown[]): unknown {
  this.on('error', () => undefined);
  socketOf(this)?.setKeepAlive(true, SILENCE_MS);
  silentConnections.watch(this);
  return typeof connect === 'function' ? Reflect.apply(connect, this, args) : undefined;
});

/**
 * The driver asks the database for its types when it is made. This one is made for the first connection, so that a pool
 * can be opened while the database is unavailable.
 */
function whenNeeded(make: DriverFactory): DriverFactory {
  return async (options) => {
    let made: Promise<Driver> | null = null;
    const createClient = async (): ReturnType<Driver['createClient']> => {
      made ??= make(options).catch((error: unknown) => {
        made = null;
        throw error;
      });
      return await (await made).createClient();
    };
    return await Promise.resolve({ createClient });
  };
}

/**
 * Rows are checked against the schema of their statement: a column that changed its type is found here, not further on.
 */
const checkingRows: Interceptor = {
  name: 'check-rows',
  transformRow: ({ resultParser }, query, row) => {
    const checked = resultParser?.['~standard'].validate(row);
    if (checked === undefined) return row;
    if (checked instanceof Promise) throw new Error('row schemas are synchronous');
    if (checked.issues !== undefined) throw new SchemaValidationError(query, row, checked.issues);
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it has just been checked
    return checked.value as typeof row;
  },
};

/** Conditions of Postgres (SQLSTATE) that pass by themselves: connection, resources, operator intervention, retries. */
const PASSING_CLASSES = ['08', '53', '57', '40', '55', '58'];

const NO_DATABASE = '3D000';
const NO_TABLE = ['3F000', '42P01'];

/**
 * Whether an error says that the database, a schema of it or a table does not exist: they will be created and filled
 * again.
 */
export function isGone(error: unknown): boolean {
  return hasState(error, [NO_DATABASE, ...NO_TABLE]);
}

/** Whether the database exists, but a schema or table of it does not. */
export function isTableGone(error: unknown): boolean {
  return hasState(error, NO_TABLE);
}

function hasState(error: unknown, states: readonly string[]): boolean {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    if ('code' in cause && states.some((state) => state === cause.code)) return true;
  }
  return false;
}

/** Whether an error says that the database is out of reach, rather than that a statement or its data is wrong. */
export function isUnavailable(error: unknown): boolean {
  if (isGone(error)) return true;
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    const code: unknown = 'code' in cause ? cause.code : undefined;
    if (typeof code === 'string') {
      // Of the system, some of them five letters long (EPIPE); no class of SQLSTATE begins with an E.
      if (/^E[A-Z]+$/.test(code)) return true;
      if (/^[0-9A-Z]{5}$/.test(code)) return PASSING_CLASSES.includes(code.slice(0, 2));
    }
    if (
      [
        'ConnectionError',
        'BackendTerminatedError',
        'BackendTerminatedUnexpectedlyError',
        'StatementTimeoutError',
      ].includes(cause.constructor.name)
    )
      return true;
    if (
      /connection terminated|connection is closed|timeout (expired|exceeded when trying to connect)|pool (is|has been) (end|shut)/i.test(
        cause.message,
      )
    )
      return true;
    // What still works with a connection that has ended hears this of the driver (slonik 49.10).
    if (/^(client is (pending destroy|destroyed)|cannot use released connection)/i.test(cause.message)) return true;
  }
  return false;
}

/** Whether the database has cancelled a statement because it took too long. */
function isTooLong(error: unknown): boolean {
  for (let cause: unknown = error; cause instanceof Error; cause = cause.cause) {
    if (cause.constructor.name === 'StatementTimeoutError') return true;
  }
  return false;
}

/**
 * Runs a read and names a database that is out of reach as such.
 * @throws UnavailableError (database), and of these ReadTooLongError when the database has cancelled the read
 */
export async function reading<T>(read: () => Promise<T>): Promise<T> {
  try {
    return await read();
  } catch (cause) {
    if (isUnavailableError(cause, 'database')) throw cause;
    if (isTooLong(cause)) throw new ReadTooLongError('the database has given a read up', { cause });
    if (isUnavailable(cause)) throw new UnavailableError('database', 'the database cannot be reached', { cause });
    throw cause;
  }
}
