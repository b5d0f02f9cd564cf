import type {
  Command,
  EventRecord,
  Manifest,
  MessagePart,
  OpenSessionRequest,
  Operations,
  SendCommandResponse,
  Session as SessionView,
  TurnPaused,
} from './api.ts';
import type { CallOptions, Connection } from './connection.ts';
import { pathOf } from './connection.ts';
import { Problem } from './problem.ts';
import { previewOf, WrittenText } from './preview.ts';
import type { Preview, ToolProgress } from './preview.ts';
import { follow } from './stream.ts';

export type Interaction = TurnPaused['payload']['interactions'][number];

export interface EventsOptions {
  /** After this cursor; `start`, also without it: from the first record; `latest`: what comes from now on. */
  readonly from?: string | undefined;
  /** Of one agent used as a tool, by its path or delegation. */
  readonly agent?: string | undefined;
  /** Called with the pieces of an answer while it is written; only then does the Host send them. */
  readonly onPreview?: ((preview: Preview) => void) | undefined;
  /** Called with what tools of MCP servers tell while they run; only then does the Host send it. */
  readonly onProgress?: ((progress: ToolProgress) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface SendOptions extends CallOptions {
  /** What becomes of it while another turn is active; default `refuse`. */
  readonly whenBusy?: 'refuse' | 'queue' | 'interrupt' | undefined;
  /** For this turn only. */
  readonly manifest?: Manifest | undefined;
  /** Two messages with the same key are one; by default each has its own. */
  readonly idempotencyKey?: string | undefined;
}

export interface AskOptions extends SendOptions {
  /** Answers what the turn asks of a person: true or false for an approval, a value for a question. Without it such a turn throws. */
  readonly answer?: ((interaction: Interaction) => unknown) | undefined;
  /**
   * Called with what the agent says while it is written. All pieces together are the texts of its messages, one after
   * the other.
   */
  readonly onText?: ((text: string) => void) | undefined;
  /** Called with every record of the turn. */
  readonly onEvent?: ((event: EventRecord) => void) | undefined;
}

/** How an uncompleted turn ended. */
export class TurnError extends Error {
  override readonly name = 'TurnError';
  readonly turnId: string;
  /** The code of the failure; `cancelled`; or `paused`, when a person is asked and no answer is given here. */
  readonly code: string;
  readonly interactions: readonly Interaction[];

  constructor(turnId: string, code: string, message: string, interactions: readonly Interaction[] = []) {
    super(message);
    this.turnId = turnId;
    this.code = code;
    this.interactions = interactions;
  }
}

type Sent = Command extends infer C
  ? C extends Command
    ? Omit<C, 'requestId' | 'idempotencyKey'> & { readonly idempotencyKey?: string | undefined }
    : never
  : never;

/** Ids of records that may come again: as many as one connection can have in flight. */
const RECENT = 1_024;

/** A session by its id. Nothing is asked of the Host before a method is called. */
export class Session {
  readonly id: string;
  readonly #connection: Connection;

  constructor(connection: Connection, id: string) {
    this.#connection = connection;
    this.id = id;
  }

  get #params() {
    return { sessionId: this.id };
  }

  /** The session now, with everything acknowledged before. */
  async get(options: CallOptions = {}): Promise<SessionView> {
    return await this.#connection.request('GET /v1/sessions/{sessionId}', { params: this.#params, ...options });
  }

  async open(body: OpenSessionRequest, options: CallOptions = {}): Promise<SessionView> {
    return await this.#connection.request('PUT /v1/sessions/{sessionId}', { params: this.#params, body, ...options });
  }

  async delete(options: CallOptions = {}): Promise<void> {
    await this.#connection.request('DELETE /v1/sessions/{sessionId}', { params: this.#params, ...options });
  }

  /** Sends a message, which starts a turn; it is on disk when this returns. */
  async send(content: string | readonly MessagePart[], options: SendOptions = {}): Promise<SendCommandResponse> {
    const { whenBusy, manifest, idempotencyKey, ...call } = options;
    const what = typeof content === 'string' ? { content } : { parts: content };
    return await this.command({ type: 'message', ...what, whenBusy, manifest, idempotencyKey }, call);
  }

  async approve(interactionId: string, approved: boolean, reason?: string): Promise<SendCommandResponse> {
    return await this.command({ type: 'approve', interactionId, approved, reason });
  }

  async respond(interactionId: string, value: unknown): Promise<SendCommandResponse> {
    return await this.command({ type: 'respond', interactionId, value });
  }

  /** Ends a turn: the active one without an id. */
  async cancel({ turnId, reason }: { readonly turnId?: string; readonly reason?: string } = {}) {
    return await this.command({ type: 'cancel', turnId, reason });
  }

  /** Resumes the last turn where it failed. */
  async retry(turnId?: string): Promise<SendCommandResponse> {
    return await this.command({ type: 'retry', turnId });
  }

  /** Sends a command under a key of its own: it is repeated until there is an answer, and counts once. */
  async command(command: Sent, options: CallOptions = {}): Promise<SendCommandResponse> {
    const idempotencyKey = command.idempotencyKey ?? crypto.randomUUID();
    const body: Command = { ...command, requestId: crypto.randomUUID(), idempotencyKey };
    return await this.#connection.request('POST /v1/sessions/{sessionId}/commands', {
      params: this.#params,
      body,
      ...options,
    });
  }

  /** A new session with the history of this one up to a cursor, or all of it. */
  async fork(id: string, { cursor, ...options }: CallOptions & { readonly cursor?: string } = {}): Promise<Session> {
    const body = { requestId: crypto.randomUUID(), idempotencyKey: crypto.randomUUID(), id, cursor };
    await this.#connection.request('POST /v1/sessions/{sessionId}/fork', { params: this.#params, body, ...options });
    return new Session(this.#connection, id);
  }

  /** The history as it is now, page by page. */
  async *history(
    query: NonNullable<Operations['GET /v1/sessions/{sessionId}/items']['query']> = {},
    options: CallOptions = {},
  ): AsyncGenerator<EventRecord, void, undefined> {
    let cursor = query.cursor;
    for (;;) {
      const page = await this.#connection.request('GET /v1/sessions/{sessionId}/items', {
        params: this.#params,
        query: { ...query, cursor },
        ...options,
      });
      yield* page.items;
      if (!page.hasMore || page.cursor === null) return;
      cursor = page.cursor;
    }
  }

  /**
   * Every record after a place of the history, and each new one: in order and once, across cuts, ends and other nodes.
   * It runs until the loop is left, the signal is aborted, or the Host refuses.
   * @throws Problem when the Host refuses for good, as `not_found` once the session is deleted
   */
  async *events(options: EventsOptions = {}): AsyncGenerator<EventRecord, void, undefined> {
    const { from, agent, signal } = options;
    // A cut before the first record must not make "now" later.
    const first = from === 'latest' ? ((await this.get({ signal })).cursor ?? undefined) : from;
    let cursor = first === 'start' ? undefined : first;
    const recent = new Set<string>();
    const shown = wantsPreviews(options) ? { previews: 'true' } : {};
    const place = () => ({
      path: pathOf('/v1/sessions/{sessionId}/events', this.#params, { cursor, agent, ...shown }),
      headers: {},
    });
    for await (const { id, event, data } of follow(this.#connection, place, signal)) {
      if (event === 'preview') tellPreview(data, options);
      if (id === null || recent.has(id)) continue;
      recent.add(id);
      for (const old of recent) {
        if (recent.size <= RECENT) break;
        recent.delete(old);
      }
      cursor = id;
      const record: EventRecord = JSON.parse(data);
      yield record;
    }
  }

  /**
   * Sends a message and waits for its turn's result.
   * @returns the output of the turn: its last text, or what its outputSchema says
   * @throws TurnError when the turn fails, is cancelled, or asks a person and `answer` is absent
   */
  async ask(content: string | readonly MessagePart[], options: AskOptions = {}): Promise<unknown> {
    const { answer, onEvent, onText, ...send } = options;
    const receipt = await this.send(content, send);
    const { turnId } = receipt;
    if (turnId === null) throw new Error('a message has a turn');
    const written = new WrittenText();
    const answered = new Set<string>();
    const onPreview = onText && ((preview: Preview) => preview.turnId === turnId && onText(written.preview(preview)));
    for await (const event of this.events({ from: receipt.cursor ?? undefined, onPreview, signal: options.signal })) {
      if (event.turnId !== turnId) continue;
      onText?.(written.record(event));
      onEvent?.(event);
      if (event.type === 'turn.completed') return event.payload.output;
      if (event.type === 'turn.failed')
        throw new TurnError(turnId, event.payload.error.code, event.payload.error.message);
      if (event.type === 'turn.cancelled')
        throw new TurnError(turnId, 'cancelled', event.payload.reason ?? 'It was cancelled.');
      if (event.type === 'turn.paused') {
        const open = event.payload.interactions.filter(({ interactionId }) => !answered.has(interactionId));
        await this.#answerAll(turnId, open, answer);
        for (const { interactionId } of open) answered.add(interactionId);
      }
    }
    throw new Error('a stream of events ends only by what it throws');
  }

  async #answerAll(turnId: string, interactions: readonly Interaction[], answer: AskOptions['answer']): Promise<void> {
    if (answer === undefined) {
      const message = 'The turn waits for a person. Pass `answer`, or send approve or respond.';
      throw new TurnError(turnId, 'paused', message, interactions);
    }
    for (const interaction of interactions) {
      const { interactionId, kind } = interaction;
      const given = await answer(interaction);
      // Under one key for each question: the Host counts what is sent for it once.
      const idempotencyKey = `answer-${interactionId}`;
      const command: Sent =
        kind === 'approval'
          ? { type: 'approve', interactionId, approved: given === true, idempotencyKey }
          : { type: 'respond', interactionId, value: given, idempotencyKey };
      await this.command(command).catch((error: unknown) => {
        // Another person was faster, or a sign-in has answered it: the events say how the turn continues.
        if (!(error instanceof Problem) || error.code !== 'session_not_waiting') throw error;
      });
    }
  }
}

function wantsPreviews({ onPreview, onProgress }: EventsOptions): boolean {
  return onPreview !== undefined || onProgress !== undefined;
}

function tellPreview(data: string, { onPreview, onProgress }: EventsOptions): void {
  const preview = previewOf(data);
  if ('progress' in preview) onProgress?.(preview);
  else onPreview?.(preview);
}
