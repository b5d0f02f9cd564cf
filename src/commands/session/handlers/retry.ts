import { receiptKey } from '../../../domain/session/receipts.ts';
import { decideRetry } from '../../../domain/session/retry.ts';
import type { RetryCommand } from '../../../domain/session/retry.ts';
import type { CommandHandler } from '../command-handler.ts';
import { refusedStart, startContext } from './starting.ts';

/** Runs the last turn, which failed, again. */
export function retryHandler(command: RetryCommand): CommandHandler {
  return {
    key: (idempotencyKey) => receiptKey(command.subject, idempotencyKey),
    prepare: async (deps, { ref }) =>
      await Promise.resolve((state, context) => {
        return refusedStart(deps, ref) ?? decideRetry(state, command, startContext(deps, ref, context));
      }),
  };
}
