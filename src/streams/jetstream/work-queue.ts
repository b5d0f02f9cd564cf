import { jetstream } from '@nats-io/jetstream';
import type { Consumer, JetStreamClient, JsMsg } from '@nats-io/jetstream';
import type { NatsConnection } from '@nats-io/transport-node';
import { UnavailableError } from '../../lib/unavailable.ts';
import { backoffMs, delay } from '../../lib/backoff.ts';
import { refOfSubject, subjectOf } from '../subjects.ts';
import type { AggregateRef } from '../subjects.ts';
import type { WorkItem, WorkQueue } from '../work-queue.ts';
import { ApiCode, apiCode } from './errors.ts';
import { WORK_CONSUMER, WORK_STREAM } from './topology.ts';

/** Longest wait of one request for an item, ms: also how soon the server notices a stop. */
const EXPIRES_MS = 5_000;

/** `WORK`: a work-queue stream with one item per session (a second one is refused by the server, not stored). */
export class JetStreamWorkQueue implements WorkQueue {
  readonly #connection: NatsConnection;
  readonly #js: JetStreamClient;

  constructor(connection: NatsConnection) {
    this.#connection = connection;
    this.#js = jetstream(connection);
  }

  async offer(ref: AggregateRef): Promise<void> {
    try {
      await this.#js.publish(`work${subjectOf(ref).slice('evt'.length)}`, '', { timeout: 2_000 });
    } catch (cause) {
      if (apiCode(cause) === ApiCode.maxMessagesPerSubject) return;
      throw new UnavailableError('streams', 'the work queue cannot be reached', { cause });
    }
  }

  async depth(): Promise<number> {
    try {
      const manager = await this.#js.jetstreamManager(false);
      return (await manager.streams.info(WORK_STREAM)).state.messages;
    } catch (cause) {
      throw new UnavailableError('streams', 'the work queue cannot be reached', { cause });
    }
  }

  async take(
    handle: (item: WorkItem) => void,
    { hasRoom, signal }: { hasRoom: () => Promise<void>; signal: AbortSignal },
  ): Promise<void> {
    for (let failures = 0; !signal.aborted;) {
      try {
        const consumer = await jetstream(this.#connection).consumers.get(WORK_STREAM, WORK_CONSUMER);
        while (!signal.aborted) {
          await hasRoom();
          const messages = await this.#next(consumer, signal);
          failures = 0;
          messages.map(itemOf).forEach((item) => handle(item));
        }
      } catch {
        // The server is unreachable: what it holds is redelivered after its acknowledgement wait.
        await delay(backoffMs(failures++, { baseMs: 50, capMs: 2_000 }), signal);
      }
    }
  }

  /** One item, or none when the request expired. */
  async #next(consumer: Consumer, signal: AbortSignal): Promise<JsMsg[]> {
    const messages = await consumer.fetch({ max_messages: 1, expires: EXPIRES_MS });
    const stop = (): void => void messages.close();
    signal.addEventListener('abort', stop, { once: true });
    try {
      for await (const message of messages) return [message];
      return [];
    } finally {
      signal.removeEventListener('abort', stop);
    }
  }
}

function itemOf(message: JsMsg): WorkItem {
  return {
    ref: refOfSubject(message.subject),
    deliveries: message.info.deliveryCount,
    done: async () => {
      try {
        await message.ackAck();
      } catch (cause) {
        throw new UnavailableError('streams', 'the work queue cannot be reached', { cause });
      }
    },
    giveBack: async (afterMs) => {
      message.nak(afterMs);
      await Promise.resolve();
    },
  };
}
