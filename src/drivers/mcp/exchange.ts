import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import type {
  DiscoverResult,
  ElicitRequest,
  ElicitResult,
  JSONRPCMessage,
  JSONRPCRequest,
  jsonSchemaValidator,
  JsonSchemaValidatorResult,
  Transport,
  TransportSendOptions,
} from '@modelcontextprotocol/client';
import { delay } from '../../lib/backoff.ts';
import type { Leg } from './leg.ts';

/** What is known of a server's revision: enough to make a request without a handshake. */
export type Session =
  | { readonly era: 'modern'; readonly revision: string; readonly discover: DiscoverResult }
  /** `id` null: the server keeps no sessions. */
  | { readonly era: 'legacy'; readonly revision: string; readonly id: string | null };

export type Elicit = (asked: ElicitRequest, signal: AbortSignal) => Promise<ElicitResult>;

/** A client checks nothing by schemas of servers: that is done with the bounded validator, after the answer. */
const UNCHECKED: jsonSchemaValidator = {
  getValidator<T>() {
    const errorMessage = undefined;
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the type is the caller's wish, and nothing is checked here
    return (input: unknown): JsonSchemaValidatorResult<T> => ({ valid: true, data: input as T, errorMessage });
  },
};
const CLIENT = { name: 'agent-runtime-host', version: '1' };

/** Of ours, in the range that the protocol leaves to implementations. */
export const ENDED_CODE = -32_099;
/** For a last notification when a call was cancelled, ms. */
const LAST_WORDS_MS = 1_000;

type InnerOptions = NonNullable<Parameters<StreamableHTTPClientTransport['send']>[1]>;

let exchanges = 0;

/**
 * One client with one transport, for one request: whatever its stream brings belongs to it. What servers of older revisions
 * keep is named by the session's id. It is closed after use.
 */
export class Exchange {
  readonly client: Client;
  readonly #leg: Leg;
  readonly #transport: OneCallTransport;

  constructor(leg: Leg, { url, session, elicit }: { url: string; session: Session | null; elicit: Elicit | null }) {
    this.#leg = leg;
    this.#transport = new OneCallTransport(leg, url, session);
    this.client = new Client(CLIENT, {
      capabilities: { elicitation: { form: {}, url: {} } },
      versionNegotiation: { mode: 'auto' },
      inputRequired: { autoFulfill: false },
      jsonSchemaValidator: UNCHECKED,
    });
    if (elicit === null) return;
    this.client.setRequestHandler(
      'elicitation/create',
      async (asked, { mcpReq }) => await elicit(asked, mcpReq.signal),
    );
  }

  /**
   * Without a request when the session is known; else by asking for the server's revision, which is then returned.
   * `isOld`: it is known not to have the newer revision, and is not asked for it.
   */
  async connect(
    known: Session | null,
    { timeoutMs, signal, isOld }: { timeoutMs: number; signal: AbortSignal; isOld: boolean },
  ): Promise<Session> {
    const options = { timeout: timeoutMs, signal };
    if (known?.era === 'modern') {
      await this.client.connect(this.#transport, { ...options, prior: { kind: 'modern', discover: known.discover } });
      return known;
    }
    const isLegacy = isOld || known !== null;
    await this.request(
      this.client.connect(this.#transport, isLegacy ? { ...options, prior: { kind: 'legacy' } } : options),
    );
    if (known !== null) return known;
    const revision = this.client.getNegotiatedProtocolVersion() ?? '';
    const discover = this.client.getDiscoverResult();
    if (discover !== undefined) return { era: 'modern', revision, discover };
    return { era: 'legacy', revision, id: this.#transport.newSessionId };
  }

  /** What a request of the client gives, or why its HTTP cannot give anything. @throws LegError */
  async request<T>(made: Promise<T>): Promise<T> {
    return await Promise.race([made, this.#leg.failed]);
  }

  /** Tells a server of an older revision that its session is over. */
  async end(): Promise<void> {
    await this.#transport.end();
  }

  /** Lets what is being said (that a call is cancelled) be sent before the connection is closed. */
  async close(): Promise<void> {
    await Promise.race([this.#transport.said(), delay(LAST_WORDS_MS, this.#leg.signal)]);
    await this.client.close();
    this.#leg.close();
  }
}

/**
 * The transport of the protocol's client, for one call in a session that others use too: ids of requests are unique in
 * the session, and an answer that ends without the result is an error at once instead of at the deadline.
 */
class OneCallTransport implements Transport {
  readonly #leg: Leg;
  readonly #inner: StreamableHTTPClientTransport;
  readonly #known: Session | null;
  readonly #prefix = `x${process.pid.toString(36)}${(exchanges += 1).toString(36)}-`;
  readonly #saying = new Set<Promise<void>>();
  /** Ids of requests without an answer, by what they are on the wire. */
  readonly #waiting = new Map<string, string | number>();
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: NonNullable<Transport['onmessage']>;
  readonly hasPerRequestStream = true;

  constructor(leg: Leg, url: string, known: Session | null) {
    this.#leg = leg;
    this.#known = known;
    const id = known?.era === 'legacy' ? known.id : null;
    this.#inner = new StreamableHTTPClientTransport(new URL(url), {
      fetch: leg.fetch,
      ...(id === null ? {} : { sessionId: id }),
      ...(known?.era === 'legacy' ? { protocolVersion: known.revision } : {}),
    });
    this.#inner.onclose = () => this.onclose?.();
    this.#inner.onerror = (error) => this.onerror?.(error);
    this.#inner.onmessage = (message) => this.onmessage?.(this.#received(message));
  }

  /** Without one, the protocol's client would make the handshake. */
  get sessionId(): string | undefined {
    return this.#known?.era === 'legacy' ? (this.#known.id ?? '') : undefined;
  }

  get newSessionId(): string | null {
    return this.#inner.sessionId ?? null;
  }

  setProtocolVersion(version: string): void {
    this.#inner.setProtocolVersion(version);
  }

  async start(): Promise<void> {
    await this.#inner.start();
  }

  async close(): Promise<void> {
    await this.#inner.close();
  }

  async end(): Promise<void> {
    await this.#inner.start();
    await this.#inner.terminateSession();
  }

  /** Resolves once no notification is being sent. */
  async said(): Promise<void> {
    await Promise.all(this.#saying);
  }

  async send(message: JSONRPCMessage, options: TransportSendOptions = {}): Promise<void> {
    if ('method' in message && 'id' in message) {
      await this.#ask(message, options);
      return;
    }
    const saying = this.#inner.send(this.#renamed(message), defined(options));
    const settled = saying.catch(() => undefined).then(() => void this.#saying.delete(settled));
    this.#saying.add(settled);
    await saying;
  }

  async #ask(message: JSONRPCRequest, options: TransportSendOptions): Promise<void> {
    const id = this.#prefix + String(message.id);
    this.#waiting.set(id, message.id);
    this.#leg.next = message.method === 'tools/call' ? 'call' : 'request';
    await this.#inner.send(
      { ...message, id },
      {
        ...defined(options),
        onRequestStreamEnd: () => this.#ended(id),
      },
    );
    if (!this.#leg.isStreamed) this.#ended(id);
  }

  /** The answer comes as a message or not at all. */
  #ended(wireId: string): void {
    const id = this.#waiting.get(wireId);
    if (id === undefined) return;
    this.#waiting.delete(wireId);
    this.onmessage?.({ jsonrpc: '2.0', id, error: { code: ENDED_CODE, message: 'the answer ended without a result' } });
  }

  #renamed(message: JSONRPCMessage): JSONRPCMessage {
    if (!('method' in message) || message.method !== 'notifications/cancelled') return message;
    const { requestId } = message.params ?? {};
    return { ...message, params: { ...message.params, requestId: this.#prefix + String(requestId) } };
  }

  #received(message: JSONRPCMessage): JSONRPCMessage {
    if ('method' in message || !('id' in message) || typeof message.id !== 'string') return message;
    const id = this.#waiting.get(message.id);
    if (id === undefined) return message;
    this.#waiting.delete(message.id);
    return { ...message, id };
  }
}

/** The options that are there: the client writes down the others too. */
function defined({ requestSignal, headers }: TransportSendOptions): InnerOptions {
  return { ...(requestSignal === undefined ? {} : { requestSignal }), ...(headers === undefined ? {} : { headers }) };
}
