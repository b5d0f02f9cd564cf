import type { FastifyReply, FastifyRequest } from 'fastify';
import type { TailHub, TailSink } from '../streams/tail-hub.ts';
import type { StoredCommit } from '../streams/commit.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { Caller } from '../auth/caller.ts';
import { ProblemError } from './problem.ts';
import { frames } from './wire/records.ts';

const HEADERS = { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' };

export interface StreamLimits {
  /** Bytes that may wait in the socket of one reader before it counts as slow. */
  readonly bufferBytes: number;
  /** A comment line is sent after so much silence, ms. */
  readonly keepaliveMs: number;
  /** Streams of one tenant that may be open on this node. */
  readonly perTenantMax: number;
}

export interface StreamStart {
  /** Whose stream it is: it ends with the credential. */
  readonly caller: Caller;
  readonly ref: AggregateRef;
  /** The last event that the reader has; null: from the beginning. */
  readonly after: { readonly position: number; readonly index: number } | null;
  /** Only events of this delegation or agent path. */
  readonly agent: string | null;
}

/**
 * What vouches for a caller just now, as a text that changes with it: its key's role, or its issuer as registered. Null:
 * nothing does any more.
 */
export type Standing = (caller: Caller) => string | null;

/** All open event streams of this node: one timer keeps the silent ones alive. */
export class EventStreams {
  readonly #hub: TailHub;
  readonly #limits: StreamLimits;
  readonly #standing: Standing;
  readonly #sinks = new Set<StreamSink>();
  readonly #perTenant = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;

  constructor(hub: TailHub, limits: StreamLimits, standing: Standing) {
    this.#hub = hub;
    this.#limits = limits;
    this.#standing = standing;
    this.#timer = setInterval(() => this.#keepAlive(), Math.max(50, limits.keepaliveMs / 5));
  }

  get size(): number {
    return this.#sinks.size;
  }

  /**
   * Answers with the stream. From here on the socket is the sink's.
   * @throws ProblemError rate_limited when the tenant has too many streams open
   */
  open(request: FastifyRequest, reply: FastifyReply, start: StreamStart): void {
    const { tenantId } = start.caller;
    const open = this.#perTenant.get(tenantId) ?? 0;
    if (open >= this.#limits.perTenantMax) throw tooManyStreams(this.#limits.perTenantMax);
    reply.hijack();
    const headers: Record<string, string> = { ...HEADERS, 'x-request-id': request.id, connection: 'keep-alive' };
    reply.raw.writeHead(200, headers);
    if (request.method === 'HEAD') {
      reply.raw.end();
      return;
    }
    const standing = this.#standing(start.caller);
    const sink = new StreamSink(reply, { ...start, standing }, this.#limits);
    this.#sinks.add(sink);
    this.#perTenant.set(tenantId, open + 1);
    sink.control('ready');
    // The commit of the last event is read again: its later events may be missing at the reader.
    const close = this.#hub.open(start.ref, start.after === null ? 0 : start.after.position - 1, sink);
    reply.raw.on('close', () => {
      close();
      sink.gone();
      this.#sinks.delete(sink);
      this.#left(tenantId);
    });
    // Between the gate and here the session was looked up: the credential may have been taken away meanwhile.
    if (standing === null) sink.end();
  }

  /** Something of the tenant has changed: ends its streams whose credential is not what it was when they opened. */
  recheck(tenantId: string): void {
    for (const sink of this.#sinks) {
      if (sink.caller.tenantId === tenantId && this.#standing(sink.caller) !== sink.standing) sink.end();
    }
  }

  #left(tenantId: string): void {
    const left = (this.#perTenant.get(tenantId) ?? 1) - 1;
    if (left === 0) this.#perTenant.delete(tenantId);
    else this.#perTenant.set(tenantId, left);
  }

  stop(): void {
    clearInterval(this.#timer);
    for (const sink of this.#sinks) sink.end();
  }

  #keepAlive(): void {
    const before = Date.now() - this.#limits.keepaliveMs;
    for (const sink of this.#sinks) sink.keepAlive(before);
  }
}

function tooManyStreams(limit: number): ProblemError {
  const message = `The tenant has ${limit} streams open on this node. Close one, or ask another node.`;
  return new ProblemError({ code: 'rate_limited', message, headers: { 'retry-after': '5' } });
}

class StreamSink implements TailSink {
  readonly #reply: FastifyReply;
  readonly #start: StreamStart & { readonly standing: string | null };
  readonly #limits: StreamLimits;
  #lastWrite = Date.now();
  #waiting: (() => void)[] = [];
  #ended = false;

  constructor(reply: FastifyReply, start: StreamStart & { standing: string | null }, limits: StreamLimits) {
    this.#reply = reply;
    this.#start = start;
    this.#limits = limits;
    reply.raw.on('drain', () => this.#wake());
  }

  get caller(): Caller {
    return this.#start.caller;
  }

  /** What vouched for the caller when the stream opened. */
  get standing(): string | null {
    return this.#start.standing;
  }

  control(event: 'ready'): void {
    this.#send(`event: ${event}\ndata: {}\n\n`);
  }

  write(stored: StoredCommit): boolean {
    const { after } = this.#start;
    let text = '';
    for (const frame of frames(stored)) {
      if (after !== null && stored.position === after.position && frame.index <= after.index) continue;
      if (this.#wants(frame)) text += frame.text;
    }
    if (text !== '') this.#send(text);
    return this.#reply.raw.writableLength <= this.#limits.bufferBytes;
  }

  async drained(): Promise<void> {
    if (this.#ended || this.#reply.raw.writableLength <= this.#limits.bufferBytes) return;
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  end(reason: 'slow' | 'stopped' | 'failed' = 'stopped'): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#wake();
    // A reader that does not take what is there would not take the end either.
    if (reason === 'slow') this.#reply.raw.destroy();
    else this.#reply.raw.end();
  }

  gone(): void {
    this.#ended = true;
    this.#wake();
  }

  keepAlive(before: number): void {
    if (this.#lastWrite <= before && this.#reply.raw.writableLength === 0) this.#send(': keepalive\n\n');
  }

  #wants({ agent }: { readonly agent: { readonly path?: unknown; readonly delegationId?: unknown } | null }): boolean {
    const wanted = this.#start.agent;
    return wanted === null || (agent !== null && (agent.path === wanted || agent.delegationId === wanted));
  }

  #send(text: string): void {
    if (this.#ended) return;
    this.#lastWrite = Date.now();
    this.#reply.raw.write(text);
  }

  #wake(): void {
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}
