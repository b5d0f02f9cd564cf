import { decideCancel } from '../../../domain/session/decide.ts';
import type { CancelCommand } from '../../../domain/session/decide.ts';
import { receiptKey } from '../../../domain/session/receipts.ts';
import type { CommandHandler } from '../command-handler.ts';

/** Cancels the active turn, and what waits behind it if the sender says so. */
export function cancelHandler(command: CancelCommand): CommandHandler {
  return {
    key: (idempotencyKey) => receiptKey(command.subject, idempotencyKey),
    prepare: async () => await Promise.resolve((state, context) => decideCancel(state, command, context)),
  };
}
