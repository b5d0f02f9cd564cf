import { Duplex } from 'node:stream';
import { Client } from 'pg';

/** A database in this process that takes messages of Postgres' protocol, and has one session. */
export interface ProtocolDatabase {
  /** Answers whole messages, several at a time. */
  readonly execProtocolRaw: (messages: Uint8Array) => Promise<Uint8Array>;
}

/** How long a statement waits for the session, ms: one that another waits for in vain, as for itself, fails. */
const TURN_MS = 10_000;
/** How long a transaction may keep the session without a statement, ms. */
const IDLE_MS = 30_000;

const QUERY = 'Q'.charCodeAt(0);
const SYNC = 'S'.charCodeAt(0);
const TERMINATE = 'X'.charCodeAt(0);
const IDLE = 'I'.charCodeAt(0);
const ROLLBACK = message('Q', 'rollback\0');
/** What a server says to a session that it has let in: no password, ready. */
const WELCOME = Buffer.concat([message('R', '\0\0\0\0'), message('Z', 'I')]);

const databases = new Map<string, InProcessPostgres>();
let made = 0;

export interface InProcessOptions {
  /** Default 10 s. */
  readonly turnMs?: number;
  /** Default 30 s. */
  readonly idleMs?: number;
}

/**
 * Serves connections of the ordinary driver from a database in this process, without a port: whatever opens `url` is
 * connected to it. The connections share the database's one session in turns: a statement takes it, and a transaction
 * keeps it to its end. All waits are bounded. Advisory locks of a session keep none of them out, and a statement that runs
 * cannot be cancelled.
 */
export class InProcessPostgres {
  readonly url: string;
  readonly #host: string;
  readonly #database: ProtocolDatabase;
  readonly #options: Required<InProcessOptions>;
  readonly #sessions = new Set<Session>();
  readonly #waiting: Waiting[] = [];
  #holder: Session | null = null;
  /** Whether the database has something of the holder under way. */
  #isBusy = false;

  constructor(database: ProtocolDatabase, { turnMs = TURN_MS, idleMs = IDLE_MS }: InProcessOptions = {}) {
    this.#database = database;
    this.#options = { turnMs, idleMs };
    made += 1;
    this.#host = `in-process-${made}`;
    this.url = `postgres://postgres@${this.#host}/postgres`;
    databases.set(this.#host, this);
    divert();
  }

  connect(): Duplex {
    const session = new Session(this);
    this.#sessions.add(session);
    return session;
  }

  /** Ends all connections; `url` names nothing any more. */
  close(): void {
    databases.delete(this.#host);
    for (const session of this.#sessions) session.destroy();
  }

  /** What the database answers a session; null: its turn did not come in time. */
  async answer(session: Session, messages: Uint8Array): Promise<Uint8Array | null> {
    if (this.#holder !== session && !(await this.#turn(session))) return null;
    this.#isBusy = true;
    const answer = await this.#database.execProtocolRaw(messages).finally(() => (this.#isBusy = false));
    // The state is the last byte of an answer: idle, or within a transaction.
    if (answer.at(-1) === IDLE) this.#pass();
    else if (session.destroyed) await this.#takeBack();
    else session.idleFor(this.#options.idleMs);
    return answer;
  }

  /** A session that ends within a transaction takes it back. */
  async left(session: Session): Promise<void> {
    this.#sessions.delete(session);
    // What is under way ends first, and sees that its session has gone.
    if (this.#holder === session && !this.#isBusy) await this.#takeBack();
  }

  async #takeBack(): Promise<void> {
    this.#isBusy = true;
    await this.#database.execProtocolRaw(ROLLBACK).finally(() => (this.#isBusy = false));
    this.#pass();
  }

  async #turn(session: Session): Promise<boolean> {
    if (this.#holder === null) {
      this.#holder = session;
      return true;
    }
    return await new Promise<boolean>((resolve) => {
      const waiting: Waiting = { session, end: (isTurn) => end(isTurn) };
      const end = (isTurn: boolean): void => {
        clearTimeout(timer);
        resolve(isTurn);
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(waiting), 1);
        end(false);
      }, this.#options.turnMs);
      this.#waiting.push(waiting);
    });
  }

  #pass(): void {
    let next = this.#waiting.shift();
    for (; next?.session.destroyed === true; next = this.#waiting.shift()) next.end(false);
    this.#holder = next?.session ?? null;
    next?.end(true);
  }
}

interface Waiting {
  readonly session: Session;
  readonly end: (isTurn: boolean) => void;
}

/** The server's end of a connection, in the shape of a socket. */
class Session extends Duplex {
  readonly #server: InProcessPostgres;
  #received: Buffer = Buffer.alloc(0);
  #isIn = false;
  #idle: NodeJS.Timeout | undefined;

  constructor(server: InProcessPostgres) {
    super();
    this.#server = server;
  }

  connect(): this {
    setImmediate(() => this.emit('connect'));
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  /** Ends the connection unless it is used within this time. */
  idleFor(ms: number): void {
    this.#idle = setTimeout(() => this.destroy(new Error('Connection terminated: its transaction was idle')), ms);
  }

  override _read(): void {
    // Answers are pushed as they come.
  }

  override _write(chunk: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    void this.#taken(done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    clearTimeout(this.#idle);
    void this.#leave(error, done);
  }

  async #leave(error: Error | null, done: (error?: Error | null) => void): Promise<void> {
    await this.#server.left(this).catch(() => undefined);
    done(error);
  }

  async #taken(done: (error?: Error | null) => void): Promise<void> {
    let failure: Error | null = null;
    try {
      await this.#take();
    } catch (error) {
      failure = error instanceof Error ? error : new Error(String(error));
    }
    done(failure);
  }

  async #take(): Promise<void> {
    if (!this.#isIn && !this.#letIn()) return;
    const { length, isEnd } = wholeBatches(this.#received);
    const batch = this.#received.subarray(0, length);
    this.#received = this.#received.subarray(length);
    if (batch.length > 0) {
      clearTimeout(this.#idle);
      const answer = await this.#server.answer(this, batch);
      if (!this.destroyed) this.push(answer ?? TOO_LATE);
    }
    if (isEnd && !this.destroyed) this.destroy();
  }

  /** The first message asks to be let in, by a name and with settings that mean nothing here. */
  #letIn(): boolean {
    if (this.#received.length < 4 || this.#received.length < this.#received.readInt32BE(0)) return false;
    this.#received = this.#received.subarray(this.#received.readInt32BE(0));
    this.#isIn = true;
    this.push(WELCOME);
    return true;
  }
}

/** The length of the messages that ask for an answer, with those that belong to them; and whether the session ends. */
function wholeBatches(received: Buffer): { readonly length: number; readonly isEnd: boolean } {
  let length = 0;
  for (let at = 0; at + 5 <= received.length;) {
    const type = received[at];
    const end = at + 1 + received.readInt32BE(at + 1);
    if (type === TERMINATE) return { length, isEnd: true };
    if (end > received.length) break;
    at = end;
    if (type === QUERY || type === SYNC) length = end;
  }
  return { length, isEnd: false };
}

function message(type: string, body: string): Buffer {
  const head = Buffer.alloc(5);
  head.write(type, 'latin1');
  head.writeInt32BE(4 + Buffer.byteLength(body), 1);
  return Buffer.concat([head, Buffer.from(body)]);
}

/** SQLSTATE 55P03 (lock not available): nothing was done, and it may be tried again. */
const TOO_LATE = Buffer.concat([
  message('E', 'SERROR\0VERROR\0C55P03\0Mthe session of the database was not to be had in time\0\0'),
  message('Z', 'I'),
]);

/** The driver opens a socket to the host of an address; to one of these hosts it is given the server's end. */
function divert(): void {
  if (made > 1) return;
  const connect: unknown = Reflect.get(Client.prototype, 'connect');
  Reflect.set(Client.prototype, 'connect', function diverted(this: Client, ...args: readonly unknown[]): unknown {
    const server = databases.get(this.host);
    const connection: unknown = Reflect.get(this, 'connection');
    if (server !== undefined && typeof connection === 'object' && connection !== null)
      Reflect.set(connection, 'stream', server.connect());
    return typeof connect === 'function' ? Reflect.apply(connect, this, args) : undefined;
  });
}
