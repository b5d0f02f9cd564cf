import { connect } from 'node:net';
import type { Socket } from 'node:net';
import { waitUntil } from '#src/embedded/wait-until.ts';

/** What a server answered. */
export interface Answer {
  readonly status: number;
  readonly body: string;
}

const HEAD_END = '\r\n\r\n';

/**
 * One keep-alive connection with one request under way at a time. It knows no more of HTTP than the servers under test
 * need, so that it takes little of the machine that they share with it.
 */
export class Line {
  readonly #socket: Socket;
  #text = '';
  #isOpen = true;
  #settle: { resolve: (answer: Answer) => void; reject: (error: Error) => void } | null = null;

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding('latin1');
    socket.on('data', (chunk) => this.#take(String(chunk)));
    socket.on('error', (error) => this.#fail(error));
    for (const end of ['end', 'close']) socket.on(end, () => this.#fail(new Error('the server closed the connection')));
  }

  static async open(address: string): Promise<Line> {
    return new Line(await dial(address));
  }

  /** A server may close a connection that has carried nothing for a while. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Sends a request that was written by `request`. */
  async send(bytes: string): Promise<Answer> {
    if (this.#settle !== null) throw new Error('a request is under way on this connection');
    if (!this.#isOpen) throw new Error('the server has closed the connection');
    return await new Promise<Answer>((resolve, reject) => {
      this.#settle = { resolve, reject };
      this.#socket.write(bytes, 'latin1');
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  #take(chunk: string): void {
    this.#text += chunk;
    const headEnd = this.#text.indexOf(HEAD_END);
    if (headEnd < 0) return;
    const length = bodyLength(this.#text, headEnd);
    const bodyStart = headEnd + HEAD_END.length;
    if (this.#text.length < bodyStart + length) return;
    const answer = { status: Number(this.#text.slice(9, 12)), body: this.#text.slice(bodyStart, bodyStart + length) };
    this.#text = this.#text.slice(bodyStart + length);
    const settle = this.#settle;
    this.#settle = null;
    settle?.resolve(answer);
  }

  #fail(error: Error): void {
    this.#isOpen = false;
    const settle = this.#settle;
    this.#settle = null;
    settle?.reject(error);
  }
}

function bodyLength(text: string, headEnd: number): number {
  const at = text.indexOf('content-length: ');
  return at < 0 || at > headEnd ? 0 : Number.parseInt(text.slice(at + 16, at + 26), 10);
}

/** Connections for requests that do not wait for one another; made as they are needed, used again. */
export class Lines {
  readonly #address: string;
  readonly #idle: Line[] = [];
  readonly #all: Line[] = [];

  constructor(address: string) {
    this.#address = address;
  }

  async open(count: number): Promise<readonly Line[]> {
    const made = await Promise.all(Array.from({ length: count }, async () => await Line.open(this.#address)));
    this.#idle.push(...made);
    this.#all.push(...made);
    return made;
  }

  async send(bytes: string): Promise<Answer> {
    while (this.#idle.length > 0 && this.#idle.at(-1)?.isOpen !== true) this.#idle.pop();
    if (this.#idle.length === 0) await this.open(1);
    const line = this.#idle.pop();
    if (line === undefined) throw new Error('no connection');
    try {
      return await line.send(bytes);
    } finally {
      this.#idle.push(line);
    }
  }

  close(): void {
    for (const line of this.#all) line.close();
  }
}

/** The text of a request; ASCII bodies only, so that characters are bytes. */
export function request(
  method: string,
  path: string,
  { headers = '', body = '' }: { headers?: string; body?: string } = {},
): string {
  const content = body === '' ? '' : `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n`;
  return `${method} ${path} HTTP/1.1\r\nHost: bench\r\n${headers}${content}\r\n${body}`;
}

const FRAME_END = '\n\n';
/** A reader that has been sent nothing for this long has everything. */
const QUIET_MS = 500;
const RESTS_WITHIN_MS = 10_000;

/**
 * An open event stream. `onFrame` gets each frame as text. The chunk sizes of HTTP stand between the frames and disturb
 * nobody who looks for a text inside of one.
 */
export class EventReader {
  readonly #socket: Socket;

  private constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Resolves when the stream has begun, with what it begins with. */
  static async open(
    address: string,
    head: string,
    onFrame: (frame: string) => void,
    first = 'event: ready',
  ): Promise<EventReader> {
    const socket = await dial(address);
    let text = '';
    let begun: (() => void) | null = null;
    socket.setEncoding('latin1');
    const started = new Promise<void>((resolve, reject) => {
      begun = resolve;
      socket.on('error', reject);
      socket.on('close', () => reject(new Error('the server closed the stream')));
    });
    socket.on('data', (chunk) => {
      text += String(chunk);
      if (begun !== null) {
        if (!text.startsWith('HTTP/1.1 200'))
          socket.destroy(new Error(`the stream was refused: ${text.slice(0, 200)}`));
        if (!text.includes(first)) return;
        begun();
        begun = null;
      }
      const end = text.lastIndexOf(FRAME_END);
      if (end < 0) return;
      for (const frame of text.slice(0, end).split(FRAME_END)) onFrame(frame);
      text = text.slice(end + FRAME_END.length);
    });
    socket.write(head, 'latin1');
    await started;
    return new EventReader(socket);
  }

  /** Takes nothing more. */
  pause(): void {
    this.#socket.pause();
  }

  /** Takes what has waited since, until nothing has come for a while; resolves to how many bytes that were. */
  async rest(): Promise<number> {
    const before = this.#socket.bytesRead;
    let [known, since] = [before, performance.now()];
    this.#socket.resume();
    const look = (): true | undefined => {
      if (this.#socket.bytesRead !== known) [known, since] = [this.#socket.bytesRead, performance.now()];
      return performance.now() - since >= QUIET_MS || undefined;
    };
    await waitUntil(look, { timeoutMs: RESTS_WITHIN_MS, intervalMs: 50 });
    return known - before;
  }

  close(): void {
    this.#socket.destroy();
  }
}

async function dial(address: string): Promise<Socket> {
  const at = address.lastIndexOf(':');
  const socket = connect({ host: address.slice(0, at), port: Number(address.slice(at + 1)), noDelay: true });
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  return socket;
}
