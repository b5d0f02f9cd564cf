import type { NatsConnection } from '@nats-io/transport-node';
import { UnavailableError } from '../../lib/unavailable.ts';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { BatchReader, TornReadError } from './direct-read.ts';
import type { Batch, BatchBounds, ReadMessage } from './direct-read.ts';
import { ReadSlots } from './read-slots.ts';

/** How long a read is retried, ms; a try that is answered properly may take longer. */
export const READ_DEADLINE_MS = 5_000;
/** Tries, and time, for a read that keeps being torn under load. */
const TORN_TRIES = 10;
const TORN_DEADLINE_MS = 15_000;
/** Subjects that the server answers at once, at most. */
const SUBJECTS_PER_REQUEST = 1_000;

interface BulkReadEvents {
  /** Called for each request for messages of one subject. */
  readonly onRead: () => void;
  /** Called for each answer that did not arrive whole. */
  readonly onTorn: () => void;
}

/** Reads that may be long, as many at a time as the connection can handle, each until it has arrived whole. */
export class BulkReader {
  readonly #slots = new ReadSlots();
  readonly #batches: BatchReader;
  readonly #events: BulkReadEvents;

  constructor(connection: NatsConnection, events: BulkReadEvents) {
    this.#batches = new BatchReader(connection, () => this.#slots.disrupted());
    this.#events = events;
  }

  /** At most `count` messages of a subject from a sequence on, from any replica. @throws UnavailableError (streams) */
  async from(stream: string, start: { seq: number; subject: string }, count: number): Promise<Batch> {
    return await this.#whole(count, async (bounds) => {
      this.#events.onRead();
      return await this.#batches.from(stream, start, bounds);
    });
  }

  /** The newest message of each of the subjects, from any replica; those without one are left out. @throws as `from` */
  async newest(stream: string, subjects: readonly string[]): Promise<ReadMessage[]> {
    const found: ReadMessage[] = [];
    const rest = [...new Set(subjects)];
    for (let wanted = rest.splice(0, SUBJECTS_PER_REQUEST); wanted.length > 0;) {
      const asked = wanted;
      const { messages, more } = await this.#whole(asked.length, async (bounds) => {
        return await this.#batches.newest(stream, asked, bounds);
      });
      found.push(...messages);
      // What did not fit into the answer is asked for again, without what did.
      const answered = new Set(messages.map(({ subject }) => subject));
      const left = more && messages.length > 0 ? asked.filter((subject) => !answered.has(subject)) : [];
      wanted = [...left, ...rest.splice(0, SUBJECTS_PER_REQUEST - left.length)];
    }
    return found;
  }

  /** Asks again until an answer has arrived whole, each time when there is room for it. */
  async #whole(count: number, read: (bounds: BatchBounds) => Promise<Batch>): Promise<Batch> {
    let begun: number | null = null;
    for (let [attempt, torn] = [0, 0]; ; attempt++) {
      try {
        return await this.#slots.run(READ_DEADLINE_MS, async () => {
          begun ??= performance.now();
          return await read({ count, bytes: this.#slots.answerBytes });
        });
      } catch (cause) {
        if (cause instanceof TornReadError) {
          torn++;
          this.#events.onTorn();
        }
        const deadlineMs = torn > 0 && torn < TORN_TRIES ? TORN_DEADLINE_MS : READ_DEADLINE_MS;
        if (begun === null || performance.now() - begun >= deadlineMs) {
          throw new UnavailableError('streams', 'the log did not answer a read in time', { cause });
        }
        await delay(backoffMs(attempt, { baseMs: 20, capMs: 250 }));
      }
    }
  }
}
