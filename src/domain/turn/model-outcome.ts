import type { ToolCall, TurnError } from './events.ts';
import type { Usage } from './usage.ts';

/** How a model call ended. */
export type ModelOutcome =
  | {
      readonly kind: 'completed';
      readonly text: string;
      readonly toolCalls: readonly ToolCall[];
      readonly usage: Usage;
    }
  | {
      readonly kind: 'failed';
      readonly error: TurnError;
      /** Null: terminal. Otherwise the least delay before another attempt, in milliseconds. */
      readonly retryAfterMs: number | null;
      /** The provider did answer, in an unusable form: it may charge for each attempt. */
      readonly mayBeBilled?: true;
      /** The conversation is longer than the model accepts. */
      readonly contextOverflow?: true;
      readonly usage: Usage;
    };
