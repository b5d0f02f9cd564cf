import { randomUUID } from 'node:crypto';
import { inspect } from 'node:util';
import { delay } from '#src/lib/backoff.ts';
import { expect } from 'vitest';
import type { EventRecord, TenantClient } from './client.ts';
import type { Random } from './random.ts';
import type { SseReader } from './sse.ts';

const TURN_ENDS = ['turn.completed', 'turn.failed', 'turn.cancelled'];
const PAUSE_MS = 20;

/** A command that the Host has accepted, as its client remembers it. */
export interface AcceptedCommand {
  readonly requestId: string;
  readonly turnId: string | null;
  readonly cursor: string | null;
}

/**
 * A client of one session that lives through crashes: it sends messages one after the other, repeats each with the same
 * idempotency key until it is accepted, and tails the session over as many connections as it takes.
 */
export class SessionClient {
  readonly sessionId: string;
  readonly accepted: AcceptedCommand[] = [];
  /** Every record that the tail has delivered, in the order of delivery. */
  readonly tailed: EventRecord[] = [];
  /** What was heard of requests that were sent again, because nothing had said what became of them. */
  readonly retried: string[] = [];
  readonly #client: TenantClient;
  readonly #random: Random;
  readonly #stop = new AbortController();
  #connections = 0;
  #turns = 0;
  #sending: Promise<void> = Promise.resolve();
  #tailing: Promise<void> = Promise.resolve();

  constructor(client: TenantClient, sessionId: string, random: Random) {
    this.#client = client;
    this.sessionId = sessionId;
    this.#random = random;
  }

  /** Streams that were opened after the first one had ended. */
  get reconnects(): number {
    return Math.max(0, this.#connections - 1);
  }

  /** Messages whose turn has ended before its eyes. */
  get turns(): number {
    return this.#turns;
  }

  start(): void {
    this.#sending = this.#send();
    this.#tailing = this.#tail();
  }

  /** Sends nothing more; the tail goes on. */
  async stopSending(): Promise<void> {
    this.#stop.abort();
    await this.#sending;
  }

  /** Resolves once the tail has delivered as many records as the history holds. */
  async settle(): Promise<readonly EventRecord[]> {
    const items = await this.#client.items(this.sessionId);
    this.#wanted = items.length;
    await this.#tailing;
    return items;
  }

  #wanted = Number.POSITIVE_INFINITY;

  async #send(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const ids = { requestId: `rq-${randomUUID()}`, idempotencyKey: randomUUID() };
      const turnId = await this.#accept(ids);
      if (turnId !== null) await this.#turnEnd(turnId);
      this.#turns++;
    }
  }

  /** Until the Host has said 202; no answer, a connection cut, 502 or 503 says nothing about whether it was recorded. */
  async #accept(ids: { requestId: string; idempotencyKey: string }): Promise<string | null> {
    const content = JSON.stringify({ fixture: this.#script() });
    for (;;) {
      const asked = this.#client.command(this.sessionId, { type: 'message', content }, ids);
      const answer = await asked.catch((error: unknown) => ({ status: 0, text: inspect(error), json: null }));
      if (answer.status === 202) {
        const { turnId, cursor, requestId } = answer.json as AcceptedCommand;
        expect(requestId).toBe(ids.requestId);
        this.accepted.push({ requestId, turnId, cursor });
        return turnId;
      }
      const heard = `${answer.status} ${answer.text}`;
      if (![0, 502, 503].includes(answer.status)) throw new Error(`a message was refused: ${heard}`);
      this.retried.push(heard);
      await delay(PAUSE_MS);
    }
  }

  #script(): unknown[] {
    const step = (): object => ({
      text: 't',
      toolCalls: [{ name: 'none', input: {} }],
      delayMs: this.#random.int(0, 60),
    });
    const retry = { error: { code: 'overloaded', message: 'later', retryable: true } };
    const steps: object[] = Array.from({ length: this.#random.int(0, 3) }, step);
    if (this.#random.int(0, 9) === 0) steps.push(retry);
    return [...steps, { text: 'done', delayMs: this.#random.int(0, 40) }];
  }

  async #turnEnd(turnId: string): Promise<void> {
    for (;;) {
      if (this.tailed.some((record) => record.turnId === turnId && TURN_ENDS.includes(record.type))) return;
      await delay(PAUSE_MS);
    }
  }

  async #tail(): Promise<void> {
    let lastEventId: string | undefined;
    while (this.tailed.length < this.#wanted) {
      const start = lastEventId === undefined ? {} : { lastEventId };
      const reader = await this.#client.events(this.sessionId, start).catch(() => null);
      if (reader !== null) this.#connections++;
      if (reader !== null) lastEventId = (await this.#read(reader)) ?? lastEventId;
      await delay(PAUSE_MS);
    }
  }

  async #read(reader: SseReader): Promise<string | undefined> {
    try {
      for (let frame = await reader.next(1_000).catch(() => undefined); frame !== null;) {
        if (frame !== undefined && frame.id !== null) this.tailed.push(JSON.parse(frame.data) as EventRecord);
        if (this.tailed.length >= this.#wanted || reader.ended) break;
        frame = await reader.next(1_000).catch(() => undefined);
      }
      // What arrived before the connection ended counts: it was delivered.
      while (reader.ended && this.tailed.length < this.#wanted) {
        const frame = await reader.next(10);
        if (frame === null) break;
        if (frame.id !== null) this.tailed.push(JSON.parse(frame.data) as EventRecord);
      }
      return reader.lastId;
    } finally {
      reader.close();
    }
  }
}

/** What must hold of a session's history whatever was killed: nothing lost, doubled, or left without an end. */
export function checkHistory(client: SessionClient, items: readonly EventRecord[]): void {
  const ids = items.map((item) => item.eventId);
  expect(new Set(ids).size, 'every event id is in the history once').toBe(ids.length);
  for (const { requestId, turnId, cursor } of client.accepted) {
    const commands = items.filter((item) => (item.payload as { requestId?: string }).requestId === requestId);
    expect(
      commands.map(({ type, turnId: of, cursor: at }) => ({ type, of, at })),
      'an accepted command is there once',
    ).toEqual([{ type: 'command.message', of: turnId, at: cursor }]);
  }
  const started = items.filter((item) => item.type === 'command.message');
  expect(started.length, 'and no command that nobody sent').toBe(client.accepted.length);
  for (const { turnId } of started) {
    const own = items.filter((item) => item.turnId === turnId);
    const ends = own.filter((item) => TURN_ENDS.includes(item.type));
    expect(
      ends.map((end) => end.type),
      `turn ${turnId} has one end`,
    ).toEqual(['turn.completed']);
    expect(own.at(-1), 'and nothing of the turn follows it').toBe(ends[0]);
  }
  expect(
    client.tailed.map((record) => record.eventId),
    'the tail saw what the pages show, in their order',
  ).toEqual(ids);
}
