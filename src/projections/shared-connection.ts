import type { DatabasePool, DatabasePoolConnection } from 'slonik';
import { KeyedQueue } from '../lib/keyed-queue.ts';
import { changeSettings } from './read-store/long-work.ts';
import type { Settings } from './read-store/long-work.ts';

/** The connection, for one that holds it. */
export interface HeldConnection {
  /** Works with it alone: with a statement, or a whole transaction. @throws what the work throws */
  use<T>(work: (connection: DatabasePoolConnection) => Promise<T>): Promise<T>;
  /** Gives it the settings of those who stay, until all who hold it have left. */
  settle(): Promise<void>;
}

/**
 * A connection to the database that several write over, one at a time. It is there as long as somebody holds it; when it
 * dies, all who do are told, and who comes next has a new one.
 */
export class SharedConnection {
  readonly #pool: DatabasePool;
  readonly #settings: Settings;
  readonly #asking = new KeyedQueue({ lengthMax: Infinity, waitMs: Infinity });
  #open: OpenConnection | null = null;

  /** @param settings of those who stay */
  constructor(pool: DatabasePool, settings: Settings) {
    this.#pool = pool;
    this.#settings = settings;
  }

  /**
   * Holds it until the work has ended. @throws what the work throws, or why the connection has died: then the work is
   * left where it is, which may be waiting for something else
   */
  async hold<T>(work: (held: HeldConnection) => Promise<T>): Promise<T> {
    const open = (this.#open ??= this.#opened());
    open.holders++;
    try {
      return await open.unlessDied(work(open));
    } finally {
      open.holders--;
      if (open.holders === 0) {
        this.#forget(open);
        await open.close();
      }
    }
  }

  /** Asks something over it when those who came before have been answered. */
  async inTurn(ask: () => Promise<void>): Promise<void> {
    await this.#asking.run('', ask, { urgent: true });
  }

  #opened(): OpenConnection {
    const open = new OpenConnection(this.#pool, this.#settings, () => this.#forget(open));
    return open;
  }

  #forget(open: OpenConnection): void {
    if (this.#open === open) this.#open = null;
  }
}

class OpenConnection implements HeldConnection {
  holders = 0;
  readonly #settings: Settings;
  /** Of those who hold it: tells them why it cannot be opened, or has died. */
  readonly #tell = new Set<(why: unknown) => void>();
  readonly #ended: Promise<void>;
  readonly #opening = Promise.withResolvers<DatabasePoolConnection>();
  readonly #closing = Promise.withResolvers<void>();
  readonly #turns = new KeyedQueue({ lengthMax: Infinity, waitMs: Infinity });
  #before: Promise<Settings> | null = null;

  constructor(pool: DatabasePool, settings: Settings, onDied: () => void) {
    this.#settings = settings;
    this.#ended = pool.connect(async (connection) => {
      this.#opening.resolve(connection);
      await this.#closing.promise;
      // The next one to have it of the pool finds it as it was.
      if (this.#before !== null) await changeSettings(connection, await this.#before);
    });
    this.#ended.catch((error: unknown) => {
      onDied();
      for (const tell of this.#tell) tell(error);
      this.#opening.reject(error);
    });
    this.#opening.promise.catch(() => undefined);
  }

  /**
   * What the work returns. @throws what it throws, or why the connection has died meanwhile. It is no race with that
   * death: a promise keeps all that ever waited for it, and a connection may live for days.
   */
  async unlessDied<T>(work: Promise<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#tell.add(reject);
    work.then(resolve, reject);
    try {
      return await promise;
    } finally {
      this.#tell.delete(reject);
    }
  }

  async use<T>(work: (connection: DatabasePoolConnection) => Promise<T>): Promise<T> {
    const connection = await this.#opening.promise;
    return await this.#turns.run('', async () => await work(connection), { urgent: true });
  }

  async settle(): Promise<void> {
    this.#before ??= this.use(async (connection) => await changeSettings(connection, this.#settings));
    try {
      await this.#before;
    } catch (error) {
      // All or none are set: who comes next tries again, also while others hold it.
      this.#before = null;
      throw error;
    }
  }

  /** Resolves when it is back in the pool, or gone. */
  async close(): Promise<void> {
    this.#closing.resolve();
    await Promise.allSettled([this.#ended]);
  }
}
