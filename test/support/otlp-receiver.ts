import { once } from 'node:events';
import { createServer } from 'node:http';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { bytes, integer, messages } from './protobuf.ts';
import type { Field } from './protobuf.ts';

/** A span as it came over the wire, ids in hex, times in nanoseconds. */
export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  /** Empty: it has no parent. */
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: number;
  readonly start: bigint;
  readonly end: bigint;
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly status: number;
  readonly links: readonly { readonly traceId: string; readonly spanId: string }[];
  /** Attributes of the service that sent it. */
  readonly resource: Readonly<Record<string, unknown>>;
}

/** Takes traces by OTLP over HTTP as protobuf, as a collector does (opentelemetry-proto, trace/v1). */
export class OtlpReceiver implements AsyncDisposable {
  readonly spans: ReceivedSpan[] = [];
  /** Headers of each request. */
  readonly headers: IncomingMessage['headers'][] = [];
  /** Bodies as they came. */
  readonly bodies: Buffer[] = [];
  /** What is answered; null: nothing is, ever. */
  status: number | null = 200;
  readonly #server: Server;

  private constructor() {
    this.#server = createServer((request, response) => {
      void this.#take(request, response).catch(() => response.writeHead(400).end());
    });
  }

  static async start(): Promise<OtlpReceiver> {
    const receiver = new OtlpReceiver();
    receiver.#server.listen(0, '127.0.0.1');
    await once(receiver.#server, 'listening');
    return receiver;
  }

  /** For `OTEL_EXPORTER_OTLP_ENDPOINT`. */
  get url(): string {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the receiver does not listen');
    return `http://127.0.0.1:${address.port}`;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const body = await buffer(request);
    if (request.method !== 'POST' || request.url !== '/v1/traces') throw new Error('not for us');
    if (request.headers['content-type'] !== 'application/x-protobuf') throw new Error('no protobuf');
    this.headers.push(request.headers);
    this.bodies.push(body);
    if (this.status === null) return;
    if (this.status === 200) this.spans.push(...spansIn(body));
    response.writeHead(this.status, { 'content-type': 'application/x-protobuf' }).end();
  }
}

/** ExportTraceServiceRequest. */
function spansIn(body: Buffer): ReceivedSpan[] {
  return messages([{ number: 1, value: body }], 1).flatMap((request) =>
    messages(request, 1).flatMap((resourceSpans) => {
      const resource = attributesOf(messages(resourceSpans, 1)[0] ?? [], 1);
      return messages(resourceSpans, 2).flatMap((scopeSpans) =>
        messages(scopeSpans, 2).map((span) => spanOf(span, resource)),
      );
    }),
  );
}

function spanOf(span: readonly Field[], resource: ReceivedSpan['resource']): ReceivedSpan {
  const ids = (fields: readonly Field[]) => ({
    traceId: bytes(fields, 1).toString('hex'),
    spanId: bytes(fields, 2).toString('hex'),
  });
  return {
    ...ids(span),
    parentSpanId: bytes(span, 4).toString('hex'),
    name: bytes(span, 5).toString(),
    kind: Number(integer(span, 6)),
    start: integer(span, 7),
    end: integer(span, 8),
    attributes: attributesOf(span, 9),
    status: Number(integer(messages(span, 15)[0] ?? [], 3)),
    links: messages(span, 13).map(ids),
    resource,
  };
}

/** A repeated KeyValue. */
function attributesOf(fields: readonly Field[], number: number): Record<string, unknown> {
  return Object.fromEntries(
    messages(fields, number).map((pair) => [bytes(pair, 1).toString(), valueOf(messages(pair, 2)[0] ?? [])]),
  );
}

/** AnyValue: a text, a truth value, an integer or a double. */
function valueOf([field]: readonly Field[]): unknown {
  if (field === undefined) return null;
  const { number, value } = field;
  if (typeof value !== 'bigint') return number === 1 ? value.toString() : value;
  if (number === 2) return value === 1n;
  if (number === 3) return Number(BigInt.asIntN(64, value));
  const double = Buffer.alloc(8);
  double.writeBigUInt64LE(value);
  return double.readDoubleLE();
}
