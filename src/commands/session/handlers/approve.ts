import { decideApprove } from '../../../domain/session/answer.ts';
import type { ApproveCommand } from '../../../domain/session/answer.ts';
import { receiptKey } from '../../../domain/session/receipts.ts';
import type { CommandHandler } from '../command-handler.ts';

/** Answers an approval: the tool is called, or the model is told that it was not allowed. */
export function approveHandler(command: ApproveCommand): CommandHandler {
  return {
    key: (idempotencyKey) => receiptKey(command.subject, idempotencyKey),
    prepare: async () => await Promise.resolve((state, context) => decideApprove(state, command, context)),
  };
}
