import type { EventRecord, MessageAssistant } from './api.ts';

/** A piece of an answer that is being written. It may be lost, and is replaced by the `message.assistant` of its call. */
export interface Preview {
  readonly turnId: string;
  readonly modelCallId: string;
  /** UTF-16 units of the same text, or of the same call's arguments, before this piece. */
  readonly offset: number;
  readonly text?: string;
  /** What the model thinks, where its settings show it. */
  readonly reasoning?: string;
  /** The next piece of the arguments, as JSON text. */
  readonly toolCall?: { readonly index: number; readonly name: string; readonly input: string };
  /** Of an agent used as a tool. */
  readonly agent?: MessageAssistant['payload']['agent'];
}

/** What a tool of an MCP server tells while it runs. It may be lost, and is replaced by the `action.completed` of its call. */
export interface ToolProgress {
  readonly turnId: string;
  readonly callId: string;
  readonly toolName: string;
  /** In the server's own unit. */
  readonly progress: { readonly progress: number; readonly total?: number; readonly message?: string };
  /** Of an agent used as a tool. */
  readonly agent?: MessageAssistant['payload']['agent'];
}

/** The data of a frame `preview`. */
export function previewOf(data: string): Preview | ToolProgress {
  const preview: Preview | ToolProgress = JSON.parse(data);
  return preview;
}

/** Calls whose text is kept while their message is awaited; one turn writes one at a time. */
const CALLS_MAX = 64;

/**
 * What a turn's own agent says, as it is written: previews where they come, and what they lack once the message is
 * there. All pieces together are the texts of the messages, each unit once.
 */
export class WrittenText {
  /** By model call: what has been shown of it. */
  readonly #shown = new Map<string, string>();

  /** The piece to show now; empty: none. */
  preview({ modelCallId, offset, text = '', agent }: Preview): string {
    const shown = this.#shown.get(modelCallId) ?? '';
    // After a gap the rest waits for the message.
    if (agent !== undefined || offset !== shown.length) return '';
    this.#keep(modelCallId, shown + text);
    return text;
  }

  /** What a record adds to what was shown; empty: nothing. */
  record(event: EventRecord): string {
    if (event.type !== 'message.assistant' || event.payload.agent !== undefined) return '';
    const { modelCallId, text } = event.payload;
    // Recorded by a Host that had no previews.
    if (modelCallId === undefined) return text;
    const shown = this.#shown.get(modelCallId) ?? '';
    // Longer than anything: a preview that is late finds no place.
    this.#keep(modelCallId, text);
    return text.startsWith(shown) ? text.slice(shown.length) : text;
  }

  #keep(modelCallId: string, text: string): void {
    this.#shown.set(modelCallId, text);
    for (const [oldest] of this.#shown) if (this.#shown.size > CALLS_MAX) this.#shown.delete(oldest);
  }
}
