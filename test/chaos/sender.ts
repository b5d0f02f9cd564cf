import { randomUUID } from 'node:crypto';
import { delay } from '#src/lib/backoff.ts';
import type { Answer, RawRequest, TenantClient } from '../support/client.ts';
import type { BoxAct } from './box-acts.ts';
import type { Outcome, Sent, SentFile } from './checks.ts';
import { problemCode } from './problem-code.ts';

/** What all clients of a run have written down. */
export interface RunRecord {
  /** Messages, answers and cancels, each with what became of it. */
  readonly sent: Sent[];
  /** The request of each of them, by its id. */
  readonly requests: Map<string, RawRequest>;
  readonly files: SentFile[];
  /** What was done to sandboxes. */
  readonly acts: BoxAct[];
  /** Requests that were sent again because nobody knew what had become of them. */
  retries: number;
  /** Answers that no fault excuses. */
  readonly broken: string[];
}

export function emptyRecord(): RunRecord {
  return { sent: [], requests: new Map(), files: [], acts: [], retries: 0, broken: [] };
}

const TRY_MS = 8_000;
const PAUSE_MS = 200;
/** Answers that leave open what became of a request, or say that nothing did: it is sent again with the same key. */
const AGAIN = new Set([429, 502, 503]);
/** What a client of this run may be refused for: others are faster, or have asked for as much before. */
const EXPECTED = new Set(['session_busy', 'session_not_waiting', 'limit_exceeded']);

/** Longer than a Host tries to append, and than any fault holds a request back. */
const ON_ITS_WAY_MS = 30_000;

interface Command {
  readonly sessionId: string;
  readonly requestId: string;
  readonly raw: RawRequest;
  /** When a try of it was last left without an answer that settles it; 0: never. */
  unansweredAt: number;
}

/** Sends commands as an application does: the same key until it knows what became of it. */
export class Sender {
  readonly #tenant: TenantClient;
  readonly #record: RunRecord;
  /** No request is begun again after it. */
  readonly #end: AbortSignal;
  /** Refused, after a try that was never answered. */
  readonly #doubted: Command[] = [];

  constructor(tenant: TenantClient, record: RunRecord, end: AbortSignal) {
    this.#tenant = tenant;
    this.#record = record;
    this.#end = end;
  }

  /** @param copies so many clients send the same command with the same key at the same time; they must hear the same */
  async command(sessionId: string, members: object, copies = 1): Promise<Outcome> {
    const ids = { requestId: `rq-${randomUUID()}`, idempotencyKey: randomUUID() };
    const path = `/v1/sessions/${encodeURIComponent(sessionId)}/commands`;
    const command = { sessionId, ...ids, raw: { method: 'POST', path, body: { ...ids, ...members } }, unansweredAt: 0 };
    this.#record.requests.set(ids.requestId, command.raw);
    const heard = await Promise.all(Array.from({ length: copies }, async () => await this.#settled(command)));
    const outcome = this.#agreed(ids.requestId, heard);
    if (outcome.kind === 'refused' && command.unansweredAt > 0) this.#doubted.push(command);
    else this.#record.sent.push({ sessionId, requestId: ids.requestId, outcome });
    return outcome;
  }

  /**
   * A refusal says nothing of an earlier try that was never answered: that one may be on its way still. The same key is
   * sent until it is accepted, or refused when nothing can be on its way any more.
   */
  async settleDoubts(): Promise<void> {
    await Promise.all(this.#doubted.splice(0).map(async (command) => await this.#settleDoubt(command)));
  }

  async #settleDoubt(command: Command): Promise<void> {
    // Nothing is gained by asking again before.
    await delay(Math.max(0, command.unansweredAt + ON_ITS_WAY_MS - performance.now()), this.#end);
    for (;;) {
      const outcome = await this.#settled(command);
      if (outcome.kind === 'refused' && performance.now() - command.unansweredAt < ON_ITS_WAY_MS) {
        await this.#again();
        continue;
      }
      const { sessionId, requestId } = command;
      this.#record.sent.push({ sessionId, requestId, outcome });
      return;
    }
  }

  /** One copy can be refused before another is accepted; two that are accepted have one receipt. */
  #agreed(requestId: string, heard: readonly Outcome[]): Outcome {
    const kinds = ['accepted', 'unknown', 'refused'] as const;
    const ranked = kinds.flatMap((kind) => heard.filter((one) => one.kind === kind));
    const [outcome = { kind: 'unknown' as const }] = ranked;
    if (outcome.kind === 'refused' && !EXPECTED.has(outcome.code)) {
      this.#record.broken.push(`${requestId} was refused with ${outcome.code}`);
    }
    for (const other of ranked) {
      if (other.kind !== 'accepted' || outcome.kind !== 'accepted') continue;
      if (other.turnId === outcome.turnId && other.cursor === outcome.cursor) continue;
      this.#record.broken.push(`${requestId} has two receipts`);
    }
    return outcome;
  }

  /** Once: an upload has no key, so nobody can ask what became of it. */
  async upload(sessionId: string, bytes: number): Promise<void> {
    const name = `file-${randomUUID()}`;
    const path = `/v1/artifacts?${new URLSearchParams({ name, sessionId }).toString()}`;
    const headers = { 'content-type': 'application/octet-stream' };
    const outcome = await this.#once({ method: 'POST', path, headers, body: Buffer.alloc(bytes, 'x') });
    this.#record.files.push({ name, size: bytes, outcome });
  }

  /** Once, for the same reason: another try would be another act. */
  async act({ sandboxId, what, path, text }: Pick<BoxAct, 'sandboxId' | 'what' | 'path' | 'text'>): Promise<void> {
    const root = `/v1/sandboxes/${encodeURIComponent(sandboxId)}`;
    const headers = { 'content-type': 'application/octet-stream' };
    const raw = {
      put: { method: 'PUT', path: `${root}/files/${path}`, headers, body: Buffer.from(text) },
      reset: { method: 'POST', path: `${root}/reset` },
      stop: { method: 'POST', path: `${root}/stop` },
      delete: { method: 'DELETE', path: root },
    }[what];
    const begunMs = performance.now();
    const outcome = await this.#once(raw);
    this.#record.acts.push({ sandboxId, what, path, text, outcome, begunMs, endedMs: performance.now() });
  }

  async #once(raw: RawRequest): Promise<SentFile['outcome']> {
    const { status = 0 } = (await this.#try(raw)) ?? {};
    if (status >= 200 && status < 300) return 'accepted';
    return status >= 400 && status < 500 ? 'refused' : 'unknown';
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

  async #settled(command: Command): Promise<Outcome> {
    for (;;) {
      const answer = await this.#try(command.raw);
      if (answer?.status === 202) {
        const { turnId, cursor } = answer.json as { turnId: string | null; cursor: string | null };
        return { kind: 'accepted', turnId, cursor };
      }
      if (answer !== null && answer.status >= 400 && answer.status < 500 && !AGAIN.has(answer.status)) {
        return { kind: 'refused', code: problemCode(answer) };
      }
      command.unansweredAt = performance.now();
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
