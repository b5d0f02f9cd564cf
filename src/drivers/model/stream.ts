import type { LanguageModelV4FinishReason, LanguageModelV4StreamPart, LanguageModelV4Usage } from '@ai-sdk/provider';
import { optional } from '../../domain/kernel/optional.ts';
import type { Seal } from '../../domain/turn/thinking.ts';
import { reportedIn } from './estimate.ts';
import type { PartlyReported } from './estimate.ts';
import type { OnModelDelta } from './port.ts';
import { sealed } from './thinking.ts';
import type { AnswerPart } from './thinking.ts';
import type { Watchdog } from './watchdog.ts';

/** An answer as far as it is of use to a turn. */
export interface StreamedAnswer {
  /** In its order; of calls those that are the turn's. */
  readonly content: readonly AnswerPart[];
  readonly finishReason: LanguageModelV4FinishReason;
  readonly usage: LanguageModelV4Usage;
}

/**
 * The provider ended an answer that had begun, by an error in the stream or without the end of its protocol. `report` is
 * what it sent about it, if anything: it may repeat anything, and is for classifying only.
 */
export class AnswerBrokenOffError extends Error {
  readonly report: unknown;

  constructor(report: unknown) {
    super('the answer was broken off');
    this.report = report;
  }
}

/** The answer has more text than a turn stores; the rest of it was not waited for. */
export class AnswerTooLongError extends Error {
  constructor(limit: number) {
    super(`the answer is longer than ${limit} characters`);
  }
}

export interface StreamReading {
  readonly onDelta: OnModelDelta | undefined;
  readonly watchdog: Watchdog;
  /** Text, and names and inputs of tool calls, UTF-16 units. */
  readonly charsMax: number;
}

/** Text that is being written, or a thought. */
interface Block {
  readonly type: 'text' | 'thought';
  readonly texts: string[];
  seal: Seal;
}

/** Reads the answer of a stream. Its pieces are passed to `onDelta` as they arrive. */
export class AnswerReader {
  readonly #reading: StreamReading;
  readonly #content: (Block | Extract<AnswerPart, { type: 'call' }>)[] = [];
  /** What is being written, by its kind and the library's id. */
  readonly #blocks = new Map<string, Block>();
  /** The order in which the calls began, by the library's id. */
  readonly #calls = new Map<string, { readonly index: number; readonly name: string }>();
  #chars = 0;
  #received = 0;
  #reported: PartlyReported = {};
  #finish: Extract<LanguageModelV4StreamPart, { type: 'finish' }> | null = null;

  constructor(reading: StreamReading) {
    this.#reading = reading;
  }

  /** What has arrived so far, UTF-16 units, and what the provider has said about tokens. */
  get soFar(): { readonly chars: number; readonly reported: PartlyReported } {
    return { chars: this.#received, reported: this.#reported };
  }

  /**
   * The whole answer.
   * @throws AnswerBrokenOffError · AnswerTooLongError · what the connection throws
   */
  async read(stream: ReadableStream<LanguageModelV4StreamPart>): Promise<StreamedAnswer> {
    for await (const part of stream) {
      this.#reading.watchdog.heard(part.type);
      this.#take(part);
    }
    return this.#whole();
  }

  #take(part: LanguageModelV4StreamPart): void {
    switch (part.type) {
      case 'raw':
        this.#reported = { ...this.#reported, ...reportedIn(part.rawValue) };
        break;
      case 'reasoning-start':
      case 'reasoning-delta':
      case 'reasoning-end':
      case 'text-start':
      case 'text-delta':
      case 'text-end':
        this.#write(part);
        break;
      case 'error':
        throw part.error instanceof Error ? part.error : new AnswerBrokenOffError(part.error);
      case 'finish':
        this.#finish = part;
        break;
      default:
        this.#takeCall(part);
    }
  }

  #write(
    part: Extract<LanguageModelV4StreamPart, { type: `${'text' | 'reasoning'}-${'start' | 'delta' | 'end'}` }>,
  ): void {
    const kind = part.type.startsWith('text') ? 'text' : 'reasoning';
    const key = `${kind} ${part.id}`;
    const type = kind === 'text' ? kind : 'thought';
    const begun = part.type.endsWith('-start') ? undefined : this.#blocks.get(key);
    const block: Block = begun ?? { type, texts: [], seal: undefined };
    if (begun === undefined) {
      this.#blocks.set(key, block);
      this.#content.push(block);
    }
    block.seal = sealed(type, block.seal, part.providerMetadata);
    if (part.type === 'reasoning-start') this.#reading.onDelta?.({ kind: 'reasoning', text: '' });
    if (!('delta' in part)) return;
    this.#received += part.delta.length;
    this.#count(part.delta.length);
    block.texts.push(part.delta);
    this.#reading.onDelta?.({ kind, text: part.delta });
  }

  #takeCall(part: LanguageModelV4StreamPart): void {
    switch (part.type) {
      case 'tool-input-start':
        // What the provider runs itself is no call of the turn's.
        if (part.providerExecuted !== true) this.#calls.set(part.id, { index: this.#calls.size, name: part.toolName });
        break;
      case 'tool-input-delta': {
        this.#received += part.delta.length;
        this.#count(part.delta.length);
        const call = this.#calls.get(part.id);
        if (call !== undefined) this.#reading.onDelta?.({ kind: 'toolCall', ...call, input: part.delta });
        break;
      }
      case 'tool-call': {
        this.#count(part.toolName.length + part.input.length);
        if (part.providerExecuted === true) break;
        const seal = sealed('call', undefined, part.providerMetadata);
        this.#content.push({ type: 'call', call: part, ...optional({ seal }) });
        break;
      }
      default:
    }
  }

  #whole(): StreamedAnswer {
    const finish = this.#finish;
    // The libraries end a stream that was cut as if it were whole, and say so here only.
    if (finish === null || finish.finishReason.unified === 'interrupted') throw new AnswerBrokenOffError(undefined);
    const { finishReason, usage } = finish;
    const content = this.#content.map((part): AnswerPart => {
      if (part.type === 'call') return part;
      return { type: part.type, text: part.texts.join(''), ...optional({ seal: part.seal }) };
    });
    return { content, finishReason, usage };
  }

  /** Inputs are counted twice, as pieces and whole: that is what they take. */
  #count(chars: number): void {
    this.#chars += chars;
    const { charsMax } = this.#reading;
    if (this.#chars > charsMax * 2) throw new AnswerTooLongError(charsMax);
  }
}
