import type { Rejection } from '../../../domain/kernel/rejection.ts';
import { budgetAskedFor, decideRespond, readRaise } from '../../../domain/session/answer.ts';
import type { RespondCommand } from '../../../domain/session/answer.ts';
import { findReceipt, receiptKey } from '../../../domain/session/receipts.ts';
import { raiseBudget } from '../../tenant/budgets.ts';
import type { CommandHandler, SendCommandDeps, SendCommandInput } from '../command-handler.ts';

/** The answer to a question of a turn; one about a budget may raise it. */
export function respondHandler(command: RespondCommand): CommandHandler {
  return {
    key: (idempotencyKey) => receiptKey(command.subject, idempotencyKey),
    prepare: async (deps, input, key) =>
      (await raised(command, deps, input, key)) ?? ((state, context) => decideRespond(state, command, context)),
  };
}

/**
 * An answer that raises one of the tenant's budgets does so before it is recorded: the turn that continues then is let
 * through. If the answer is not recorded after all, a repetition of the command finds the budget raised.
 */
async function raised(
  command: RespondCommand,
  deps: SendCommandDeps,
  { ref, actor }: SendCommandInput,
  key: string,
): Promise<Rejection | null> {
  if (command.subject !== null) return null;
  const raise = readRaise(command.value);
  if (raise === null || raise === false) return null;
  // With everything acknowledged: the question may have come up on another node a moment ago.
  const { state } = await deps.sessions.refresh(ref);
  const budgetId = budgetAskedFor(state, command.interactionId);
  // A key that was used before raises nothing: its answer does not depend on the budget.
  const isUsed = state.status === 'open' && findReceipt(state.receipts, key) !== undefined;
  if (budgetId === null || isUsed) return null;
  const input = { tenantId: ref.tenant, actor, causation: command.requestId, budgetId, ...raise };
  const outcome = await raiseBudget(deps, input);
  return outcome.kind === 'rejected' ? outcome : null;
}
