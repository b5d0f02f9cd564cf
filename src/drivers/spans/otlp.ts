import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { withoutNulls } from '../../domain/kernel/optional.ts';
import type { TurnSpan } from '../../domain/session/spans.ts';
import { delay } from '../../lib/backoff.ts';
import type { Logger } from '../../lib/logger.ts';
import { OutageLog } from '../../lib/outage-log.ts';
import type { SpanCounts, SpanExporter, SpanOwner } from './port.ts';
import { spanIdOf, traceIdOf } from './span-ids.ts';

export interface OtlpOptions {
  /** What the spans are of: `service.name`, `service.instance.id`, … */
  readonly resource: Readonly<Record<string, string>>;
  readonly logger: Logger;
  /** Spans that may wait; more are dropped. */
  readonly waitingMax?: number;
  /** How long the receiver may take for the remainder at the end, ms. */
  readonly closeMs?: number;
}

type ReadableSpan = Parameters<OTLPTraceExporter['export']>[0][number];

const WAITING_MAX = 4_096;
const BATCH_MAX = 512;
/** Spans within this time are sent together, ms. */
const GATHER_MS = 500;
const CLOSE_MS = 3_000;
const SCOPE = { name: 'agent-runtime-host' };
const INTERNAL = 0;
const CLIENT = 2;
const STATUS_UNSET = 0;
const STATUS_ERROR = 2;
const SAMPLED = 1;

/**
 * Sends spans by OTLP over HTTP, as protobuf. Address, headers, time-outs and certificates are the exporter's own
 * variables, `OTEL_EXPORTER_OTLP_…`. One request at a time; the exporter repeats a failed one until its time-out, and
 * then drops its spans.
 */
export class OtlpSpans implements SpanExporter {
  readonly #exporter = new OTLPTraceExporter();
  readonly #resource: ReadableSpan['resource'];
  readonly #outage: OutageLog;
  readonly #waitingMax: number;
  readonly #closeMs: number;
  #waiting: ReadableSpan[] = [];
  #counts: SpanCounts = { exported: 0, failed: 0, overflowed: 0 };
  #timer: NodeJS.Timeout | null = null;
  #sending: Promise<void> | null = null;
  #underWay = 0;
  #isClosed = false;

  constructor({ resource, logger, waitingMax = WAITING_MAX, closeMs = CLOSE_MS }: OtlpOptions) {
    this.#resource = resourceFromAttributes(resource);
    this.#outage = new OutageLog(logger, 'the export of traces');
    this.#waitingMax = waitingMax;
    this.#closeMs = closeMs;
  }

  get counts(): SpanCounts {
    return this.#counts;
  }

  export(owner: SpanOwner, spans: readonly TurnSpan[]): void {
    const room = this.#isClosed ? 0 : this.#waitingMax - this.#waiting.length;
    const taken = spans.slice(0, Math.max(0, room));
    this.#count('overflowed', spans.length - taken.length);
    for (const span of taken) this.#waiting.push(readable(owner, span, this.#resource));
    if (this.#waiting.length === 0 || this.#timer !== null) return;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      void this.#send();
    }, GATHER_MS);
  }

  async close(): Promise<void> {
    if (this.#timer !== null) clearTimeout(this.#timer);
    const over = new AbortController();
    const sent = this.#send().then(async () => await this.#exporter.shutdown());
    await Promise.race([sent, delay(this.#closeMs, over.signal)]);
    over.abort();
    this.#isClosed = true;
    this.#count('failed', this.#waiting.length + this.#underWay);
    this.#waiting = [];
  }

  /** Resolves when nothing is waiting. */
  async #send(): Promise<void> {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
    });
    await this.#sending;
  }

  async #sendAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, BATCH_MAX);
      this.#underWay = batch.length;
      const error = await this.#sendBatch(batch);
      // What was in progress at the end has been counted there.
      if (this.#isClosed) return;
      this.#underWay = 0;
      this.#count(error === null ? 'exported' : 'failed', batch.length);
      if (error === null) this.#outage.worked();
      else this.#outage.failed(error);
    }
  }

  async #sendBatch(batch: ReadableSpan[]): Promise<Error | null> {
    return await new Promise((resolve) => {
      this.#exporter.export(batch, ({ code, error }) => {
        resolve(code === 0 ? null : (error ?? new Error('the receiver of traces did not take them')));
      });
    });
  }

  #count(what: keyof SpanCounts, spans: number): void {
    this.#counts = { ...this.#counts, [what]: this.#counts[what] + spans };
  }
}

function readable(owner: SpanOwner, span: TurnSpan, resource: ReadableSpan['resource']): ReadableSpan {
  const { turnId, key, parent, error, link } = span;
  const traceId = traceIdOf(owner, turnId);
  const context = (of: string) => ({ traceId, spanId: spanIdOf(owner, turnId, of), traceFlags: SAMPLED });
  const attributes = {
    ...span.attributes,
    'gen_ai.conversation.id': owner.sessionId,
    'agent_host.tenant.id': owner.tenantId,
    ...withoutNulls({ 'error.type': error }),
  };
  const [startMs, endMs] = [Date.parse(span.startedAt), Date.parse(span.endedAt)];
  return {
    name: span.name,
    kind: span.kind === 'client' ? CLIENT : INTERNAL,
    spanContext: () => context(key),
    ...(parent === null ? {} : { parentSpanContext: context(parent) }),
    startTime: hrTime(startMs),
    endTime: hrTime(endMs),
    duration: hrTime(endMs - startMs),
    status: { code: error === null ? STATUS_UNSET : STATUS_ERROR },
    attributes,
    links: link === null ? [] : [{ context: { ...link, traceFlags: SAMPLED, isRemote: true } }],
    events: [],
    ended: true,
    resource,
    instrumentationScope: SCOPE,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  };
}

/** Seconds and nanoseconds. */
function hrTime(ms: number): [seconds: number, nanos: number] {
  return [Math.trunc(ms / 1_000), (ms % 1_000) * 1_000_000];
}
