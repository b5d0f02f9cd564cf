import type { EventRecord, Preview } from '../../../client/client.ts';
import type { AgentRef } from './entries.ts';

/** What a model is writing, as far as it has come. */
export interface Written {
  readonly modelCallId: string;
  readonly turnId: string;
  readonly text: string;
  readonly reasoning: string;
  /** Calls whose arguments are being written, as JSON text. */
  readonly toolCalls: readonly { readonly name: string; readonly input: string }[];
  /** Pieces before these are not known. */
  readonly isPartial: boolean;
  readonly agent?: AgentRef | undefined;
}

interface Kept {
  readonly offset: number;
  readonly text: string;
}

/** Enough for a screen; the message has all of it. */
const SHOWN_MAX = 20_000;

/** The answers that are being written. Each is dropped once its message, or the end of its turn, is there. */
export class Writing {
  readonly #calls = new Map<string, Written>();
  readonly #kept = new Map<string, Kept>();

  get calls(): readonly Written[] {
    return [...this.#calls.values()];
  }

  preview({ turnId, modelCallId, offset, text, reasoning, toolCall, agent }: Preview): void {
    const call = this.#calls.get(modelCallId) ?? {
      ...{ modelCallId, turnId, text: '', reasoning: '', toolCalls: [], isPartial: false, agent },
    };
    if (text !== undefined) {
      const kept = this.#keep(`${modelCallId}:text`, { offset, text });
      this.#calls.set(modelCallId, { ...call, text: kept.text, isPartial: call.isPartial || kept.offset > 0 });
    } else if (reasoning !== undefined) {
      const kept = this.#keep(`${modelCallId}:reasoning`, { offset, text: reasoning });
      this.#calls.set(modelCallId, { ...call, reasoning: kept.text });
    } else if (toolCall !== undefined) {
      const kept = this.#keep(`${modelCallId}:${toolCall.index}`, { offset, text: toolCall.input });
      const toolCalls = [...call.toolCalls];
      toolCalls[toolCall.index] = { name: toolCall.name, input: kept.text };
      // A reader that came late does not know the calls before this one.
      this.#calls.set(modelCallId, { ...call, toolCalls: toolCalls.filter((one) => one !== undefined) });
    }
  }

  record(record: EventRecord): void {
    if (record.type === 'message.assistant')
      this.#drop(({ modelCallId }) => modelCallId === record.payload.modelCallId);
    else if (record.type === 'turn.completed' || record.type === 'turn.failed' || record.type === 'turn.cancelled')
      this.#drop(({ turnId }) => turnId === record.turnId);
  }

  /** Continues a text, or begins again after a gap. A piece that came before changes nothing. */
  #keep(key: string, { offset, text }: Kept): Kept {
    const before = this.#kept.get(key);
    const end = before === undefined ? 0 : before.offset + before.text.length;
    if (before !== undefined && offset < end) return before;
    const joined = before !== undefined && offset === end ? before.text + text : text;
    const cut = Math.max(0, joined.length - SHOWN_MAX);
    const kept = { offset: offset + text.length - joined.length + cut, text: joined.slice(cut) };
    this.#kept.set(key, kept);
    return kept;
  }

  #drop(isOver: (call: Written) => boolean): void {
    for (const call of this.#calls.values()) {
      if (!isOver(call)) continue;
      this.#calls.delete(call.modelCallId);
      for (const key of this.#kept.keys()) if (key.startsWith(`${call.modelCallId}:`)) this.#kept.delete(key);
    }
  }
}
