import { Agent, request as httpRequest } from 'node:http';
import type { ClientRequest, IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { record } from '#src/http/wire/events.ts';
import type { z } from 'zod';

export interface SseFrame {
  readonly id: string | null;
  readonly event: string;
  readonly data: string;
}

export interface SseStart {
  readonly headers?: Readonly<Record<string, string>>;
  readonly lastEventId?: string;
  readonly cursor?: string;
  readonly agent?: string;
  readonly previews?: true;
}

interface Target {
  readonly base: string;
  readonly path: string;
  readonly start: SseStart;
}

const OPEN_MS = 30_000;
const NEXT_MS = 60_000;
/** A socket of its own for each stream, so that dropping one means dropping the connection. */
const agent = new Agent({ keepAlive: false });

/** One connection to a live stream. It reads on its own; `next` gives frame after frame, and none is lost between calls. */
export class SseReader {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** All frames so far, control frames too. */
  readonly frames: SseFrame[] = [];
  /** Comment lines so far. */
  readonly comments: string[] = [];
  readonly #target: Target;
  readonly #request: ClientRequest;
  #read = 0;
  #rest = '';
  #lastId: string | undefined;
  #ended = false;
  #wake: () => void = () => undefined;

  private constructor(target: Target, request: ClientRequest, response: IncomingMessage) {
    this.#target = target;
    this.#request = request;
    this.status = response.statusCode ?? 0;
    this.headers = response.headers;
    this.#lastId = target.start.lastEventId;
    response.setEncoding('utf8').on('data', (text: string) => this.#take(text));
    // However the connection ends, for its reader it has ended.
    response.on('error', () => undefined);
    response.on('close', () => {
      this.#ended = true;
      this.#wake();
    });
  }

  /** @throws when the answer is no stream; the message has its status and body */
  static async open(base: string, path: string, start: SseStart = {}): Promise<SseReader> {
    const query = new URLSearchParams();
    if (start.cursor !== undefined) query.set('cursor', start.cursor);
    if (start.agent !== undefined) query.set('agent', start.agent);
    if (start.previews === true) query.set('previews', 'true');
    const { hostname, port } = new URL(base);
    const headers = {
      accept: 'text/event-stream',
      ...start.headers,
      ...(start.lastEventId === undefined ? {} : { 'last-event-id': start.lastEventId }),
    };
    const full = query.size === 0 ? path : `${path}?${query.toString()}`;
    return await new Promise<SseReader>((resolve, reject) => {
      const request = httpRequest({ hostname, port, path: full, headers, agent }, (response) => {
        request.setTimeout(0);
        if (response.statusCode === 200) resolve(new SseReader({ base, path, start }, request, response));
        else void refusal(full, response).then(reject, reject);
      });
      request.setTimeout(OPEN_MS, () => request.destroy(new Error(`${full}: no answer within ${OPEN_MS} ms`)));
      request.on('error', reject);
      request.end();
    });
  }

  /** The records so far, parsed: what `items` would show. */
  get records(): z.infer<typeof record>[] {
    return this.frames.filter(({ id }) => id !== null).map(({ data }) => record.parse(JSON.parse(data)));
  }

  /** The id of the newest record that `next`, `find` or `collect` gave, on this connection or the ones before it. */
  get lastId(): string | undefined {
    return this.#lastId;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** The next frame; null once the stream has ended. @throws when none comes in time */
  async next(timeoutMs = NEXT_MS): Promise<SseFrame | null> {
    await this.#until(() => this.frames.length > this.#read, timeoutMs);
    const frame = this.frames[this.#read];
    if (frame === undefined) return null;
    this.#read += 1;
    if (frame.id !== null) this.#lastId = frame.id;
    return frame;
  }

  /** Reads on until there is a frame that fits, and gives it. @throws when the stream ends before */
  async find(fits: (frame: SseFrame) => boolean, timeoutMs = NEXT_MS): Promise<SseFrame> {
    const seen = [];
    for (let frame = await this.next(timeoutMs); frame !== null; frame = await this.next(timeoutMs)) {
      if (fits(frame)) return frame;
      seen.push(frame.event);
    }
    throw new Error(`the stream ended before the frame; it had ${seen.join(', ')}`);
  }

  /** Reads on until there are `count` records, and gives all that there are. */
  async collect(count: number, timeoutMs = NEXT_MS): Promise<SseReader['records']> {
    await this.#until(() => this.frames.filter(({ id }) => id !== null).length >= count, timeoutMs);
    this.#read = this.frames.length;
    this.#lastId = this.frames.findLast(({ id }) => id !== null)?.id ?? this.#lastId;
    return this.records;
  }

  /** Waits for a comment line. */
  async comment(timeoutMs = NEXT_MS): Promise<string> {
    await this.#until(() => this.comments.length > 0, timeoutMs);
    return this.comments.shift() ?? '';
  }

  /** Waits until the Host has ended the stream. */
  async end(timeoutMs = NEXT_MS): Promise<void> {
    await this.#until(() => this.#ended, timeoutMs);
    if (!this.#ended) throw new Error('the stream did not end');
  }

  /** Drops the connection, with whatever is in it. */
  close(): void {
    this.#request.destroy();
  }

  /** Drops this connection and opens one behind the newest record, as a browser's EventSource does; at another node if given. */
  async resume(base = this.#target.base): Promise<SseReader> {
    this.close();
    const { start, path } = this.#target;
    const { cursor, ...rest } = start;
    const again = this.#lastId === undefined ? { ...rest, ...(cursor === undefined ? {} : { cursor }) } : rest;
    return await SseReader.open(base, path, {
      ...again,
      ...(this.#lastId === undefined ? {} : { lastEventId: this.#lastId }),
    });
  }

  async #until(there: () => boolean, timeoutMs: number): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (!there() && !this.#ended) {
      const left = deadline - performance.now();
      if (left <= 0) throw new Error(`nothing more within ${timeoutMs} ms; had ${this.#summary()}`);
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
        timer = setTimeout(resolve, left);
      });
      clearTimeout(timer);
    }
  }

  #summary(): string {
    return `${this.frames.length} frames: ${this.frames
      .slice(-10)
      .map(({ event }) => event)
      .join(', ')}`;
  }

  #take(text: string): void {
    const blocks = (this.#rest + text).split('\n\n');
    this.#rest = blocks.pop() ?? '';
    for (const block of blocks) this.#frame(block.split('\n'));
    this.#wake();
  }

  #frame(lines: readonly string[]): void {
    const fields = new Map<string, string>();
    for (const line of lines) {
      const at = line.indexOf(':');
      if (at === 0) this.comments.push(line.slice(1).trim());
      else fields.set(line.slice(0, at), line.slice(at + 1).replace(/^ /, ''));
    }
    if (fields.size === 0) return;
    const id = fields.get('id') ?? null;
    this.frames.push({ id, event: fields.get('event') ?? 'message', data: fields.get('data') ?? '' });
  }
}

async function refusal(path: string, response: IncomingMessage): Promise<Error> {
  let text = '';
  for await (const part of response.setEncoding('utf8')) text += String(part);
  return new Error(`${path}: ${response.statusCode} ${text.slice(0, 500)}`);
}
