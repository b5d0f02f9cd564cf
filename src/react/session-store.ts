import { WrittenText } from '../client/client.ts';
import type { Client, EventRecord, Preview, SendOptions } from '../client/client.ts';

type Session = ReturnType<Client['session']>;
/** What an agent asks a person. */
export type Interaction = Extract<EventRecord, { type: 'turn.paused' }>['payload']['interactions'][number];

/** A session as a component sees it. A new object whenever something has changed, the same one until then. */
export interface SessionSnapshot {
  /** Oldest first; the newest `eventsMax` of them. */
  readonly events: readonly EventRecord[];
  /** The history up to the present is still being read. */
  readonly isLoading: boolean;
  /** A turn has started and not ended. */
  readonly isBusy: boolean;
  /** What people are asked and have not answered. */
  readonly interactions: readonly Interaction[];
  /** What the agent is writing, as far as it has come; empty: it writes nothing. Its message replaces it. */
  readonly writing: string;
  /** Why nothing more comes: the Host refused, as with `not_found` once the session is deleted. */
  readonly error: Error | null;
}

export interface SessionActions {
  readonly send: (content: string, options?: SendOptions) => Promise<void>;
  readonly approve: (interactionId: string, approved: boolean, reason?: string) => Promise<void>;
  readonly respond: (interactionId: string, value: unknown) => Promise<void>;
  /** Ends the turn that runs. */
  readonly cancel: (reason?: string) => Promise<void>;
  /** Resumes the last turn where it failed. */
  readonly retry: () => Promise<void>;
}

export const EMPTY: SessionSnapshot = {
  ...{ events: [], isLoading: true, isBusy: false, interactions: [], writing: '', error: null },
};
/** Records that come together are shown together: a history of thousands is not drawn a thousand times. */
const TOGETHER_MS = 16;

/**
 * What is known of a session. It reads while it has listeners, and continues after the last record when it gets one again:
 * nothing comes twice, however often components mount. Nothing is read before the first, so it may be made while rendering.
 */
export class SessionStore {
  readonly actions: SessionActions;
  readonly #session: Session;
  readonly #eventsMax: number;
  readonly #listeners = new Set<() => void>();
  readonly #turns = new Set<string>();
  readonly #asked = new Map<string, { readonly turnId: string | null; readonly interaction: Interaction }>();
  #reading: AbortController | null = null;
  #cursor: string | undefined;
  #isRead = false;
  #writing = '';
  #fresh: EventRecord[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;
  #snapshot = EMPTY;

  constructor(session: Session, eventsMax: number) {
    this.#session = session;
    this.#eventsMax = eventsMax;
    this.actions = {
      send: async (content, options) => void (await session.send(content, options)),
      approve: async (...given) => void (await session.approve(...given)),
      respond: async (...given) => void (await session.respond(...given)),
      cancel: async (reason) => void (await session.cancel(reason === undefined ? {} : { reason })),
      retry: async () => void (await session.retry()),
    };
  }

  readonly snapshot = (): SessionSnapshot => this.#snapshot;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    if (this.#reading === null) this.#start();
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#stop();
    };
  };

  #start(): void {
    const reading = new AbortController();
    this.#reading = reading;
    this.#snapshot = { ...this.#snapshot, error: null };
    this.#read(reading.signal).catch((error: unknown) => {
      if (reading.signal.aborted) return;
      this.#flush({ error: error instanceof Error ? error : new Error(String(error)), isLoading: false });
    });
  }

  #stop(): void {
    this.#reading?.abort(new Error('no component shows the session any more'));
    this.#reading = null;
    this.#writing = '';
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  async #read(signal: AbortSignal): Promise<void> {
    if (!this.#isRead) {
      for await (const event of this.#session.history({ cursor: this.#cursor, limit: 1_000 }, { signal }))
        if (!this.#take(event, signal)) return;
      if (signal.aborted) return;
      this.#isRead = true;
      this.#flush({ isLoading: false });
    }
    const written = new WrittenText();
    const onPreview = (preview: Preview): void => {
      if (signal.aborted) return;
      this.#writing += written.preview(preview);
      this.#soon();
    };
    for await (const event of this.#session.events({ from: this.#cursor, onPreview, signal })) {
      // A preview that is late finds no place.
      written.record(event);
      if (!this.#take(event, signal)) return;
    }
  }

  /** False: another reading has taken over, and continues after what was taken. */
  #take(event: EventRecord, signal: AbortSignal): boolean {
    if (signal.aborted) return false;
    this.#cursor = event.cursor;
    // At once: the pieces of the next message may come before this record is shown.
    if (isEndOfWriting(event)) this.#writing = '';
    this.#fresh.push(event);
    this.#soon();
    return true;
  }

  #soon(): void {
    this.#timer ??= setTimeout(() => this.#flush({}), TOGETHER_MS);
  }

  #flush(over: Partial<SessionSnapshot>): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    for (const event of this.#fresh) this.#fold(event);
    const events = [...this.#snapshot.events, ...this.#fresh].slice(-this.#eventsMax);
    this.#fresh = [];
    const interactions = [...this.#asked.values()].map(({ interaction }) => interaction);
    const isBusy = this.#turns.size > 0;
    this.#snapshot = { ...this.#snapshot, events, interactions, isBusy, writing: this.#writing, ...over };
    for (const listener of this.#listeners) listener();
  }

  #fold(event: EventRecord): void {
    const { type, turnId, payload } = event;
    if (type === 'command.approve' || type === 'command.respond') this.#asked.delete(payload.interactionId);
    if (turnId === null) return;
    if (type === 'turn.completed' || type === 'turn.failed' || type === 'turn.cancelled') {
      this.#turns.delete(turnId);
      for (const [id, asked] of this.#asked) if (asked.turnId === turnId) this.#asked.delete(id);
    } else if (type === 'command.message' || type === 'command.retry') {
      this.#turns.add(turnId);
    } else if (type === 'turn.paused') {
      for (const interaction of payload.interactions)
        this.#asked.set(interaction.interactionId, { turnId, interaction });
    }
  }
}

/** What was written has become a message, or will not become one. */
function isEndOfWriting({ type, payload }: EventRecord): boolean {
  if (type === 'message.assistant') return payload.agent === undefined;
  return type === 'turn.completed' || type === 'turn.failed' || type === 'turn.cancelled';
}
