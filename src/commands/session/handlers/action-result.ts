import { decideActionResult } from '../../../domain/session/claims.ts';
import type { ActionResultCommand } from '../../../domain/session/claims.ts';
import { executorReceiptKey } from '../../../domain/session/receipts.ts';
import { faultPoint } from '../../../lib/fault-points.ts';
import type { CommandHandler } from '../command-handler.ts';

/** The result of an action, from the executor of this agent. */
export function actionResultHandler(command: ActionResultCommand & { readonly agentId: string }): CommandHandler {
  return {
    key: (idempotencyKey) => executorReceiptKey(command.agentId, idempotencyKey),
    prepare: async () => await Promise.resolve((state, context) => decideActionResult(state, command, context)),
    recorded: async () => await faultPoint('action.settled'),
  };
}
