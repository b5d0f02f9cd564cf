import type {
  LanguageModelV4Content,
  LanguageModelV4FinishReason,
  LanguageModelV4StreamPart,
  LanguageModelV4Usage,
} from '@ai-sdk/provider';
import { reportedIn } from './estimate.ts';
import type { PartlyReported } from './estimate.ts';
import type { OnModelDelta } from './port.ts';
import type { Watchdog } from './watchdog.ts';

/** An answer as far as it is of use to a turn. */
export interface StreamedAnswer {
  readonly content: readonly Extract<LanguageModelV4Content, { type: 'text' | 'tool-call' }>[];
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

/** Reads the answer of a stream. Its pieces are passed to `onDelta` as they arrive. */
export class AnswerReader {
  readonly #reading: StreamReading;
  readonly #content: StreamedAnswer['content'][number][] = [];
  /** The order in which the calls began, by the library's id. */
  readonly #calls = new Map<string, { readonly index: number; readonly name: string }>();
  readonly #texts: string[] = [];
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
    const { onDelta } = this.#reading;
    switch (part.type) {
      case 'raw':
        this.#reported = { ...this.#reported, ...reportedIn(part.rawValue) };
        break;
      case 'reasoning-delta':
        this.#received += part.delta.length;
        break;
      case 'text-delta':
        this.#received += part.delta.length;
        this.#count(part.delta.length);
        this.#texts.push(part.delta);
        onDelta?.({ kind: 'text', text: part.delta });
        break;
      case 'tool-input-start':
        // What the provider runs itself is no call of the turn's.
        if (part.providerExecuted !== true) this.#calls.set(part.id, { index: this.#calls.size, name: part.toolName });
        break;
      case 'tool-input-delta': {
        this.#received += part.delta.length;
        this.#count(part.delta.length);
        const call = this.#calls.get(part.id);
        if (call !== undefined) onDelta?.({ kind: 'toolCall', ...call, input: part.delta });
        break;
      }
      case 'tool-call':
        this.#count(part.toolName.length + part.input.length);
        this.#content.push(part);
        break;
      case 'error':
        throw part.error instanceof Error ? part.error : new AnswerBrokenOffError(part.error);
      case 'finish':
        this.#finish = part;
        break;
      default:
    }
  }

  #whole(): StreamedAnswer {
    const finish = this.#finish;
    // The libraries end a stream that was cut as if it were whole, and say so here only.
    if (finish === null || finish.finishReason.unified === 'interrupted') throw new AnswerBrokenOffError(undefined);
    const { finishReason, usage } = finish;
    return { content: [{ type: 'text', text: this.#texts.join('') }, ...this.#content], finishReason, usage };
  }

  /** Inputs are counted twice, as pieces and whole: that is what they take. */
  #count(chars: number): void {
    this.#chars += chars;
    const { charsMax } = this.#reading;
    if (this.#chars > charsMax * 2) throw new AnswerTooLongError(charsMax);
  }
}
