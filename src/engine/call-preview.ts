import type { AgentRef } from '../domain/action/events.ts';
import type { ModelDelta } from '../drivers/model/port.ts';
import type { Previews } from '../streams/previews.ts';
import type { AggregateRef } from '../streams/subjects.ts';

/** The least time between two frames of one call, ms: as fast as a person reads, and 20 messages a second. */
const FRAME_MS = 50;
/** Of one frame, UTF-16 units; what is more is left out, as `offset` shows. */
const FRAME_CHARS_MAX = 65_536;

export interface PreviewedCall {
  readonly ref: AggregateRef;
  readonly turnId: string;
  readonly modelCallId: string;
  readonly agent?: AgentRef;
  /** Whether readers may see what the model thinks. */
  readonly showReasoning: boolean;
}

/** What readers are shown of an answer: one kind a frame. `offset`: UTF-16 units of that kind sent before it. */
interface Waiting {
  readonly offset: number;
  readonly of:
    | { readonly kind: 'text' | 'reasoning' }
    | { readonly kind: 'toolCall'; readonly index: number; readonly name: string };
  text: string;
}

/**
 * Shows an answer while it is written to those that ask for it. Nothing depends on it: the recorded message replaces it.
 */
export class CallPreview {
  readonly #previews: Pick<Previews, 'isAsked' | 'send'>;
  readonly #call: PreviewedCall;
  /** Units that have arrived, by kind. */
  readonly #arrived = new Map<string, number>();
  readonly #waiting = new Map<string, Waiting>();
  #timer: NodeJS.Timeout | undefined;
  #sentAt = Number.NEGATIVE_INFINITY;
  #hasEnded = false;

  constructor(previews: Pick<Previews, 'isAsked' | 'send'>, call: PreviewedCall) {
    this.#previews = previews;
    this.#call = call;
  }

  readonly take = (delta: ModelDelta): void => {
    if (this.#hasEnded) return;
    if (delta.kind === 'reasoning' && !(this.#call.showReasoning && delta.text !== '')) return;
    const text = delta.kind === 'toolCall' ? delta.input : delta.text;
    const key = delta.kind === 'toolCall' ? `toolCall ${delta.index}` : delta.kind;
    const offset = this.#arrived.get(key) ?? 0;
    this.#arrived.set(key, offset + text.length);
    // Of a reader that comes in the middle `offset` says what it has missed.
    if (!this.#previews.isAsked(this.#call.ref)) return;
    const waiting = this.#waiting.get(key);
    if (waiting === undefined) {
      const of =
        delta.kind === 'toolCall' ? { kind: delta.kind, index: delta.index, name: delta.name } : { kind: delta.kind };
      this.#waiting.set(key, { offset, of, text });
    } else if (waiting.text.length < FRAME_CHARS_MAX) waiting.text += text;
    this.#soon();
  };

  /** The call is over, or no longer this worker's. What has not been sent is not worth it any more. */
  end(): void {
    this.#hasEnded = true;
    clearTimeout(this.#timer);
    this.#waiting.clear();
  }

  #soon(): void {
    if (this.#timer !== undefined) return;
    const leftMs = this.#sentAt + FRAME_MS - performance.now();
    if (leftMs <= 0) this.#send();
    else this.#timer = setTimeout(() => this.#send(), leftMs);
  }

  #send(): void {
    this.#timer = undefined;
    this.#sentAt = performance.now();
    const { ref, turnId, modelCallId, agent } = this.#call;
    for (const { offset, of, text } of this.#waiting.values()) {
      const piece = text.slice(0, FRAME_CHARS_MAX);
      const what =
        of.kind === 'toolCall' ? { toolCall: { index: of.index, name: of.name, input: piece } } : { [of.kind]: piece };
      this.#previews.send(
        ref,
        JSON.stringify({ turnId, modelCallId, offset, ...what, ...(agent === undefined ? {} : { agent }) }),
      );
    }
    this.#waiting.clear();
  }
}
