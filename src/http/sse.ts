import type { FastifyReply, FastifyRequest } from 'fastify';
import type { ReadSession } from '../projections/forks/queries.ts';
import type { Drained, EarlierPart, TailEnd, TailSink } from '../streams/tail.ts';
import type { OnPreview, Previews } from '../streams/previews.ts';
import type { TailHub } from '../streams/tail-hub.ts';
import type { StoredCommit } from '../streams/commit.ts';
import type { EventPlace } from '../streams/cursor.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { Caller } from '../auth/caller.ts';
import type { Clock } from '../lib/clock.ts';
import { endWork } from './gate.ts';
import { ProblemError } from './problem.ts';
import { SseStream } from './sse-stream.ts';
import { StreamMemory } from './stream-memory.ts';
import { frames, inheritedFrames } from './wire/records.ts';
import type { Frame } from './wire/records.ts';

const HEADERS = { 'content-type': 'text/event-stream', 'cache-control': 'no-store', 'x-accel-buffering': 'no' };

export interface StreamLimits {
  /** Bytes that may wait for one reader; at this many it is slow. */
  readonly bufferBytes: number;
  /** Bytes that may wait for all readers of this node; past it the slowest are cut off. */
  readonly totalBytes: number;
  /** Silence after which a comment line is sent, ms. */
  readonly keepaliveMs: number;
  /** Streams of one tenant that may be open on this node. */
  readonly perTenantMax: number;
  /** By which credentials expire. */
  readonly clock: Clock;
  /** Called for each stream over the limit, for the metrics. */
  readonly onRefused?: () => void;
}

export interface StreamStart {
  /** Whose stream it is: it ends with the credential, or when that has expired. */
  readonly caller: Caller;
  readonly ref: AggregateRef;
  /** What it reads through. */
  readonly session: ReadSession;
  /** The last event that the reader has; null: from the beginning. */
  readonly after: EventPlace | null;
  /** Only events of this delegation or agent path. */
  readonly agent: string | null;
  /** Also shows answers while they are written. */
  readonly previews: boolean;
}

/** What the streams are fed from. */
export interface StreamFeeds {
  readonly hub: TailHub;
  readonly previews: Pick<Previews, 'follow'>;
}

/**
 * A text that changes with what authenticates a caller: its key's role, or its issuer as registered. Null: nothing does any
 * more.
 */
export type CredentialFingerprint = (caller: Caller) => string | null;

/** How long the rest of a text is kept that the reader does not take. */
const REST_MS = 500;

/** A reader of a stream that has ended has this long to take what was sent. */
const LAST_MS = 5_000;

/** How often the streams are swept: for silent ones, expired credentials, and ends that are not read. */
const SWEEP_MS = 1_000;

/**
 * All open event streams of this node: one timer keeps the silent ones alive, ends the expired ones, and closes what has
 * ended and is not read.
 */
export class EventStreams {
  readonly #feeds: StreamFeeds;
  readonly #limits: StreamLimits;
  readonly #fingerprint: CredentialFingerprint;
  readonly #streams = new Set<SseStream>();
  readonly #perTenant = new Map<string, number>();
  readonly #timer: NodeJS.Timeout;
  readonly #memory: StreamMemory;

  constructor(feeds: StreamFeeds, limits: StreamLimits, fingerprint: CredentialFingerprint) {
    this.#feeds = feeds;
    this.#limits = limits;
    this.#fingerprint = fingerprint;
    this.#memory = new StreamMemory({
      totalBytes: limits.totalBytes,
      streams: this.#streams,
      beside: () => feeds.hub.keptBytes,
    });
    this.#timer = setInterval(() => this.#sweep(), Math.max(50, Math.min(SWEEP_MS, limits.keepaliveMs / 5)));
  }

  get size(): number {
    return this.#streams.size;
  }

  /** Bytes that wait for readers of this node. */
  get heldBytes(): number {
    return this.#memory.bytes;
  }

  /**
   * Answers with the stream of a session. From here on the socket is the stream's.
   * @throws ProblemError rate_limited when the tenant has too many streams open
   */
  open(request: FastifyRequest, reply: FastifyReply, start: StreamStart): void {
    this.openWith(request, reply, start.caller, (stream) => {
      stream.send('event: ready\ndata: {}\n\n');
      const { after, before } = tailStart(start);
      const { hub, previews } = this.#feeds;
      const close = hub.open(start.ref, after, new TailReader(stream, start), before);
      const unfollow = start.previews ? previews.follow(start.ref, previewsFor(stream, start.agent)) : () => undefined;
      return () => {
        unfollow();
        close();
      };
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
    endWork(request);
    // Its client left while the session was looked up: a stream begun now would never learn of that.
    if (reply.raw.destroyed) return;
    const headers: Record<string, string> = { ...HEADERS, 'x-request-id': request.id, connection: 'keep-alive' };
    reply.raw.writeHead(200, headers);
    if (request.method === 'HEAD') {
      reply.raw.end();
      return;
    }
    const fingerprint = this.#fingerprint(caller);
    const { bufferBytes } = this.#limits;
    const onHeld = (bytes: number): void => this.#memory.changed(bytes);
    const stream = new SseStream(reply.raw, { caller, fingerprint, bufferBytes, onHeld });
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
    if (fingerprint === null) stream.end();
  }

  /** Something of the tenant has changed: ends its streams whose credential is not what it was when they opened. */
  recheck(tenantId: string): void {
    for (const stream of this.#streams) {
      if (stream.caller.tenantId === tenantId && this.#fingerprint(stream.caller) !== stream.fingerprint) stream.end();
    }
  }

  #left(tenantId: string): void {
    const left = (this.#perTenant.get(tenantId) ?? 1) - 1;
    if (left === 0) this.#perTenant.delete(tenantId);
    else this.#perTenant.set(tenantId, left);
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#memory.stop();
    for (const stream of this.#streams) stream.end();
  }

  #sweep(): void {
    const now = this.#limits.clock();
    const silentSince = performance.now() - this.#limits.keepaliveMs;
    const oldest = performance.now() - REST_MS;
    const endedBy = performance.now() - LAST_MS;
    for (const stream of this.#streams) {
      stream.letGo(oldest);
      stream.cutOff(endedBy);
      const { expiresAt } = stream.caller;
      if (expiresAt !== null && expiresAt <= now) stream.end();
      else stream.keepAlive(silentSince);
    }
  }
}

/** The commit of the last event is read again: the reader may lack its later events. */
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

/** Writes previews to a stream, without ids: a reader resumes at records only. */
function previewsFor(stream: SseStream, agent: string | null): OnPreview {
  return (text) => {
    if (agent === null || isOf(agent, text)) stream.preview(previewFrame(text));
  };
}

function isOf(agent: string, text: string): boolean {
  const preview: unknown = JSON.parse(text);
  const { path, delegationId } = Object(Reflect.get(Object(preview), 'agent'));
  return path === agent || delegationId === agent;
}

/** All readers of a session on this node get the same text, one after the other. */
function framesOnce(): (text: string) => string {
  let last = { text: '', frame: '' };
  return (text) => {
    if (last.text !== text) last = { text, frame: `event: preview\ndata: ${text}\n\n` };
    return last.frame;
  };
}

const previewFrame = framesOnce();

function tooManyStreams(limit: number): ProblemError {
  const message = `The tenant has ${limit} streams open on this node. Close one, or ask another node.`;
  return new ProblemError({ code: 'rate_limited', message, headers: { 'retry-after': '5' } });
}

/** All frames of a commit as one text, made once for all readers of it. */
const textOf = memoizedText();

function memoizedText(): (stored: StoredCommit) => string {
  const known = new WeakMap<StoredCommit, string>();
  return (stored) => {
    let text = known.get(stored);
    if (text === undefined)
      known.set(
        stored,
        (text = frames(stored)
          .map((frame) => frame.text)
          .join('')),
      );
    return text;
  };
}

const ENDS: ReadonlySet<string> = new Set(['session.deleted', 'sandbox.deleted']);

/** Writes the commits of a session to a stream, as the records that its reader asked for. */
class TailReader implements TailSink {
  readonly #stream: SseStream;
  readonly #start: StreamStart;
  /** Of this commit only a part has been sent. */
  #unfinished: { readonly position: number; readonly part: EarlierPart | undefined } | null = null;
  /** The stream ends when that commit has been sent. */
  #endsAfter = false;

  constructor(stream: SseStream, start: StreamStart) {
    this.#stream = stream;
    this.#start = start;
  }

  write(stored: StoredCommit, part?: EarlierPart): boolean {
    const isSame = this.#unfinished?.position === stored.position && this.#unfinished.part === part;
    if (this.#unfinished !== null && !isSame) {
      // The rest of it is gone, and nothing else can follow half a frame.
      this.#stream.end('failed');
      return true;
    }
    const text = this.#textOf(stored, part);
    const goesOn = text === '' || this.#stream.push(text);
    this.#unfinished = goesOn ? null : { position: stored.position, part };
    // What comes after it belongs to another session, or sandbox, of the same id.
    const isLast = part === undefined && stored.commit.events.some(({ type }) => ENDS.has(type));
    if (isLast && goesOn) this.#stream.end();
    this.#endsAfter = isLast;
    return goesOn;
  }

  async drained(): Promise<Drained> {
    const drained = await this.#stream.drained();
    if (drained === 'taken') {
      this.#unfinished = null;
      if (this.#endsAfter) this.#stream.end();
    }
    return drained;
  }

  end(reason: TailEnd): void {
    this.#stream.end(reason);
  }

  #textOf(stored: StoredCommit, part: EarlierPart | undefined): string {
    const { agent, after } = this.#start;
    if (part === undefined && agent === null && stored.position !== after?.position) return textOf(stored);
    let text = '';
    for (const frame of this.#framesOf(stored, part)) if (this.#wants(frame)) text += frame.text;
    return text;
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
