import { randomUUID } from 'node:crypto';
import { delay } from '#src/lib/backoff.ts';
import type { Answer, RawRequest, TenantClient } from '../support/client.ts';
import { problemCode } from './problem-code.ts';
import type { Random } from '../support/random.ts';
import type { Outcome, Sent, SentFile } from './checks.ts';

/** What all clients of a run have written down. */
export interface RunRecord {
  /** Messages, answers and cancels, each with what became of it. */
  readonly sent: Sent[];
  readonly files: SentFile[];
  /** Requests that were sent again because nobody knew what had become of them. */
  retries: number;
  /** Answers that no fault excuses. */
  readonly broken: string[];
}

export function emptyRecord(): RunRecord {
  return { sent: [], files: [], retries: 0, broken: [] };
}

const TRY_MS = 8_000;
const PAUSE_MS = 100;
/** Answers that leave open what became of a request, or say that nothing did: it is sent again with the same key. */
const AGAIN = new Set([429, 502, 503]);
/** What a client of this run may be refused for: others are faster, or have asked for as much before. */
const EXPECTED = new Set(['session_busy', 'session_not_waiting', 'limit_exceeded']);
const FILE_BYTES = 20_000;

/** Sends commands as an application does: the same key until it knows what became of it. */
export class Sender {
  readonly #tenant: TenantClient;
  readonly #record: RunRecord;
  /** No request is begun again after it. */
  readonly #end: AbortSignal;

  constructor(tenant: TenantClient, record: RunRecord, end: AbortSignal) {
    this.#tenant = tenant;
    this.#record = record;
    this.#end = end;
  }

  /** @param copies so many clients send the same command with the same key at the same time; they must hear the same */
  async command(sessionId: string, members: object, copies = 1): Promise<Outcome> {
    const ids = { requestId: `rq-${randomUUID()}`, idempotencyKey: randomUUID() };
    const path = `/v1/sessions/${encodeURIComponent(sessionId)}/commands`;
    const raw = { method: 'POST', path, body: { ...ids, ...members } };
    const heard = await Promise.all(Array.from({ length: copies }, async () => await this.#settled(raw)));
    const outcome = (['accepted', 'unknown', 'refused'] as const)
      .map((kind) => heard.find((one) => one.kind === kind))
      .find((one) => one !== undefined) ?? { kind: 'unknown' };
    if (outcome.kind === 'refused' && !EXPECTED.has(outcome.code)) {
      this.#record.broken.push(`${ids.requestId} was refused with ${outcome.code}`);
    }
    for (const other of heard) {
      // One copy can be refused before another is accepted; two that are accepted have one receipt.
      if (other.kind !== 'accepted' || outcome.kind !== 'accepted') continue;
      if (other.turnId !== outcome.turnId || other.cursor !== outcome.cursor) {
        this.#record.broken.push(`${ids.requestId} has two receipts`);
      }
    }
    this.#record.sent.push({ sessionId, requestId: ids.requestId, outcome });
    return outcome;
  }

  /** Once: an upload has no key, so nobody can ask what became of it. */
  async upload(sessionId: string, bytes: number): Promise<void> {
    const name = `file-${randomUUID()}`;
    const path = `/v1/artifacts?${new URLSearchParams({ name, sessionId }).toString()}`;
    const headers = { 'content-type': 'application/octet-stream' };
    const answer = await this.#try({ method: 'POST', path, headers, body: Buffer.alloc(bytes, 'x') });
    const refused = answer !== null && answer.status >= 400 && answer.status < 500;
    const outcome = answer?.status === 201 ? 'accepted' : refused ? 'refused' : 'unknown';
    this.#record.files.push({ name, size: bytes, outcome });
  }

  /** True once the fork is there; its key makes the same of every try. */
  async fork(sessionId: string, id: string): Promise<boolean> {
    const body = { requestId: `rq-${randomUUID()}`, idempotencyKey: randomUUID(), id };
    const path = `/v1/sessions/${encodeURIComponent(sessionId)}/fork`;
    return (await this.#until201({ method: 'POST', path, body })) === 201;
  }

  async #until201(raw: RawRequest): Promise<number> {
    for (;;) {
      const answer = await this.#try(raw);
      if (answer !== null && !AGAIN.has(answer.status)) return answer.status;
      if (this.#end.aborted) return 0;
      await this.#again();
    }
  }

  async #settled(raw: RawRequest): Promise<Outcome> {
    for (;;) {
      const answer = await this.#try(raw);
      if (answer?.status === 202) {
        const { turnId, cursor } = answer.json as { turnId: string | null; cursor: string | null };
        return { kind: 'accepted', turnId, cursor };
      }
      if (answer !== null && answer.status >= 400 && answer.status < 500 && !AGAIN.has(answer.status)) {
        return { kind: 'refused', code: problemCode(answer) };
      }
      if (this.#end.aborted) return { kind: 'unknown' };
      await this.#again();
    }
  }

  async #again(): Promise<void> {
    this.#record.retries++;
    await delay(PAUSE_MS, this.#end);
  }

  /** Null: no answer. */
  async #try(raw: RawRequest): Promise<Answer | null> {
    const answer = await this.#tenant.request({ ...raw, timeoutMs: TRY_MS }).catch(() => null);
    if (answer !== null && answer.status >= 500 && !AGAIN.has(answer.status)) {
      this.#record.broken.push(`${raw.method} ${raw.path}: ${answer.status} ${answer.text.slice(0, 200)}`);
    }
    return answer;
  }
}

const BUSY = ['refuse', 'refuse', 'queue', 'queue', 'interrupt'];

export interface TalkOptions {
  readonly sender: Sender;
  readonly sessions: readonly string[];
  readonly forksMax: number;
  readonly onFork: (id: string) => void;
  readonly random: Random;
  readonly stop: AbortSignal;
}

/** A client that talks to sessions in turn with others: messages, cancels, files, forks, one after the other. */
export async function talk(options: TalkOptions): Promise<void> {
  const { sender, sessions, random, stop } = options;
  while (!stop.aborted) {
    const session = sessions[random.int(0, sessions.length - 1)] ?? '';
    const dice = random.int(1, 100);
    if (dice <= 70) await sender.command(session, message(random), dice <= 10 ? 2 : 1);
    else if (dice <= 78) await sender.command(session, { type: 'cancel', reason: 'enough' });
    else if (dice <= 90) await sender.upload(session, random.int(0, FILE_BYTES));
    else if (dice <= 93) await fork(options, session);
    await delay(random.int(20, 250), stop);
  }
}

async function fork({ sender, sessions, forksMax, onFork, stop }: TalkOptions, parent: string): Promise<void> {
  const forks = sessions.filter((id) => id.startsWith('fork/')).length;
  if (forks >= forksMax || stop.aborted) return;
  const id = `fork/${randomUUID()}`;
  if (await sender.fork(parent, id)) onFork(id);
}

function message(random: Random): object {
  const steps = Array.from({ length: random.int(0, 3) }, () => step(random));
  const script = { fixture: [...steps, { text: 'done', delayMs: random.int(0, 300) }] };
  return { type: 'message', content: JSON.stringify(script), whenBusy: BUSY[random.int(0, BUSY.length - 1)] };
}

function step(random: Random): object {
  const dice = random.int(1, 10);
  const call = (name: string): object => ({ name, input: { n: random.int(0, 9) } });
  if (dice === 1) return { error: { code: 'overloaded', message: 'later', retryable: true } };
  if (dice === 2) return { text: 'may I', toolCalls: [call('careful')] };
  if (dice <= 6) return { text: 'work', toolCalls: Array.from({ length: random.int(1, 2) }, () => call('work')) };
  return { text: 'none', toolCalls: [call('none')], delayMs: random.int(0, 200) };
}
