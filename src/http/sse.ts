import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ReadSession } from '../projections/forks/queries.ts';
import type { EarlierPart, TailHub, TailSink } from '../streams/tail-hub.ts';
import type { StoredCommit } from '../streams/commit.ts';
import type { EventPlace } from '../streams/cursor.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { Caller } from '../auth/caller.ts';
import { ProblemError } from './problem.ts';
import { frames, inheritedFrames } from './wire/records.ts';
import type { Frame } from './wire/records.ts';

const HEADERS = { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' };

export interface StreamLimits {
  /** Bytes that may wait in the socket of one reader before it counts as slow. */
  readonly bufferBytes: number;
  /** A comment line is sent after so much silence, ms. */
  readonly keepaliveMs: number;
  /** Streams of one tenant that may be open on this node. */
  readonly perTenantMax: number;
  /** Told of each stream that was one too many, for the metrics. */
  readonly onRefused?: () => void;
}

export interface StreamStart {
  /** Whose stream it is: it ends with the credential, or when that is past its time. */
  readonly caller: Caller;
  readonly ref: AggregateRef;
  /** What it reads through. */
  readonly session: ReadSession;
  /** The last event that the reader has; null: from the beginning. */
  readonly after: EventPlace | null;
  /** Only events of this delegation or agent path. */
  readonly agent: string | null;
}

/**
 * What vouches for a caller just now, as a text that changes with it: its key's role, or its issuer as registered. Null:
 * nothing does any more.
 */
export type Standing = (caller: Caller) => string | null;

/** How often the streams are looked through: for silent ones, and for those whose credential is past its time. */
const LOOK_MS = 1_000;

/** All open event streams of this node: one timer keeps the silent ones alive and ends those that are past their time. */
export class EventStreams {
  readonly #hub: TailHub;
  readonly #limits: StreamLimits;
  readonly #standing: Standing;
  readonly #streams = new Set<SseStream>();
  readonly #perTenant = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;

  constructor(hub: TailHub, limits: StreamLimits, standing: Standing) {
    this.#hub = hub;
    this.#limits = limits;
    this.#standing = standing;
    this.#timer = setInterval(() => this.#look(), Math.max(50, Math.min(LOOK_MS, limits.keepaliveMs / 5)));
  }

  get size(): number {
    return this.#streams.size;
  }

  /**
   * Answers with the stream of a session. From here on the socket is the stream's.
   * @throws ProblemError rate_limited when the tenant has too many streams open
   */
  open(request: FastifyRequest, reply: FastifyReply, start: StreamStart): void {
    this.openWith(request, reply, start.caller, (stream) => {
      stream.send('event: ready\ndata: {}\n\n');
      const { after, before } = tailStart(start);
      return this.#hub.open(start.ref, after, new TailReader(stream, start), before);
    });
  }

  /**
   * Answers with a stream that `follow` feeds; what it returns is called once, when the stream has ended.
   * @throws ProblemError rate_limited when the tenant has too many streams open
   */
  openWith(
    request: FastifyRequest,
    reply: FastifyReply,
    caller: Caller,
    follow: (stream: SseStream) => () => void,
  ): void {
    const { tenantId } = caller;
    const open = this.#perTenant.get(tenantId) ?? 0;
    if (open >= this.#limits.perTenantMax) {
      this.#limits.onRefused?.();
      throw tooManyStreams(this.#limits.perTenantMax);
    }
    reply.hijack();
    // Its client left while the session was looked up: a stream that began now would never hear of that.
    if (reply.raw.destroyed) return;
    const headers: Record<string, string> = { ...HEADERS, 'x-request-id': request.id, connection: 'keep-alive' };
    reply.raw.writeHead(200, headers);
    if (request.method === 'HEAD') {
      reply.raw.end();
      return;
    }
    const standing = this.#standing(caller);
    const stream = new SseStream(reply.raw, { caller, standing, bufferBytes: this.#limits.bufferBytes });
    this.#streams.add(stream);
    this.#perTenant.set(tenantId, open + 1);
    const close = follow(stream);
    reply.raw.on('close', () => {
      close();
      stream.gone();
      this.#streams.delete(stream);
      this.#left(tenantId);
    });
    // Between the gate and here the session was looked up: the credential may have been taken away meanwhile.
    if (standing === null) stream.end();
  }

  /** Something of the tenant has changed: ends its streams whose credential is not what it was when they opened. */
  recheck(tenantId: string): void {
    for (const stream of this.#streams) {
      if (stream.caller.tenantId === tenantId && this.#standing(stream.caller) !== stream.standing) stream.end();
    }
  }

  #left(tenantId: string): void {
    const left = (this.#perTenant.get(tenantId) ?? 1) - 1;
    if (left === 0) this.#perTenant.delete(tenantId);
    else this.#perTenant.set(tenantId, left);
  }

  stop(): void {
    clearInterval(this.#timer);
    for (const stream of this.#streams) stream.end();
  }

  #look(): void {
    const now = Date.now();
    const silentSince = performance.now() - this.#limits.keepaliveMs;
    for (const stream of this.#streams) {
      const { expiresAt } = stream.caller;
      if (expiresAt !== null && expiresAt <= now) stream.end();
      else stream.keepAlive(silentSince);
    }
  }
}

/** The commit of the last event is read again: its later events may be missing at the reader. */
function tailStart({ ref, session, after }: StreamStart): { after: number; before: EarlierPart[] } {
  const { createdPosition, origin } = session;
  if (after !== null && after.inherited === undefined) return { after: after.position - 1, before: [] };
  const first = after?.inherited?.ancestor ?? 0;
  const before = (origin?.ancestry ?? []).flatMap((part, ancestor) => {
    if (ancestor < first) return [];
    const begin = after !== null && ancestor === first ? after.position - 1 : part.createdPosition;
    return [{ ref: { ...ref, id: part.sessionId }, ancestor, after: begin, upTo: part.position }];
  });
  return { after: createdPosition, before };
}

function tooManyStreams(limit: number): ProblemError {
  const message = `The tenant has ${limit} streams open on this node. Close one, or ask another node.`;
  return new ProblemError({ code: 'rate_limited', message, headers: { 'retry-after': '5' } });
}

interface StreamOwner {
  readonly caller: Caller;
  /** What vouched for the caller when the stream opened. */
  readonly standing: string | null;
  /** Bytes that may wait in the socket before the reader counts as slow. */
  readonly bufferBytes: number;
}

/** One open stream: a socket, and whose it is. */
export class SseStream {
  readonly #socket: FastifyReply['raw'];
  readonly #owner: StreamOwner;
  #lastWrite = performance.now();
  #waiting: (() => void)[] = [];
  #ended = false;

  constructor(socket: FastifyReply['raw'], owner: StreamOwner) {
    this.#socket = socket;
    this.#owner = owner;
    socket.on('drain', () => this.#wake());
  }

  get caller(): Caller {
    return this.#owner.caller;
  }

  get standing(): string | null {
    return this.#owner.standing;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** Whether more waits in the socket than may. */
  get isSlow(): boolean {
    return this.#socket.writableLength > this.#owner.bufferBytes;
  }

  /** Frames as they go over the wire. Nothing is sent on a stream that has ended. */
  send(text: string): void {
    if (this.#ended) return;
    this.#lastWrite = performance.now();
    this.#socket.write(text);
  }

  /** Resolves when the reader has taken what was written, or is gone. */
  async drained(): Promise<void> {
    if (this.#ended || !this.isSlow) return;
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  end(reason: 'slow' | 'stopped' | 'failed' = 'stopped'): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#wake();
    // A reader that does not take what is there would not take the end either.
    if (reason === 'slow') this.#socket.destroy();
    else this.#socket.end();
  }

  gone(): void {
    this.#ended = true;
    this.#wake();
  }

  /** A comment line, when nothing has been written since. */
  keepAlive(since: number): void {
    if (this.#lastWrite <= since && this.#socket.writableLength === 0) this.send(': keepalive\n\n');
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

/** Writes the commits of a session to a stream, as the records that its reader asked for. */
class TailReader implements TailSink {
  readonly #stream: SseStream;
  readonly #start: StreamStart;

  constructor(stream: SseStream, start: StreamStart) {
    this.#stream = stream;
    this.#start = start;
  }

  write(stored: StoredCommit, part?: EarlierPart): boolean {
    let text = '';
    for (const frame of this.#framesOf(stored, part)) if (this.#wants(frame)) text += frame.text;
    if (text !== '') this.#stream.send(text);
    if (part !== undefined) return !this.#stream.isSlow;
    // What comes after belongs to another session of the same id.
    if (stored.commit.events.some(({ type }) => type === 'session.deleted')) this.#stream.end();
    return !this.#stream.isSlow;
  }

  async drained(): Promise<void> {
    await this.#stream.drained();
  }

  end(reason: 'slow' | 'stopped' | 'failed'): void {
    this.#stream.end(reason);
  }

  /** Those that the reader does not have yet, and of an inherited part those that belong to it. */
  #framesOf(stored: StoredCommit, part: EarlierPart | undefined): readonly Frame[] {
    const { ref, session, after } = this.#start;
    const { position } = stored;
    const first = position === after?.position && part?.ancestor === after.inherited?.ancestor ? after.index + 1 : 0;
    if (part === undefined) return first === 0 ? frames(stored) : frames(stored).filter(({ index }) => index >= first);
    const { ancestor } = part;
    const end = session.origin?.ancestry[ancestor];
    const last = position === end?.position ? end.index : Number.POSITIVE_INFINITY;
    const all = inheritedFrames(stored, ref, { ancestor, createdPosition: session.createdPosition });
    return all.filter(({ index }) => index >= first && index <= last);
  }

  #wants({ agent }: { readonly agent: { readonly path?: unknown; readonly delegationId?: unknown } | null }): boolean {
    const wanted = this.#start.agent;
    return wanted === null || (agent !== null && (agent.path === wanted || agent.delegationId === wanted));
  }
}
