import { decideActionResult } from '../../../domain/session/claims.ts';
import type { ActionResultCommand } from '../../../domain/session/claims.ts';
import { executorReceiptKey, findReceipt } from '../../../domain/session/receipts.ts';
import type { SessionState } from '../../../domain/session/state.ts';
import type { TurnContext } from '../../../domain/turn/context.ts';
import { faultPoint } from '../../../lib/fault-points.ts';
import { removeArtifact } from '../../artifact/remove.ts';
import { isTooLong, keptResult } from '../../artifact/tool-results.ts';
import type { CommandHandler, SendCommandDeps, SendCommandInput } from '../command-handler.ts';

type Command = ActionResultCommand & { readonly agentId: string };
type Kept = Awaited<ReturnType<typeof keptResult>>;

/** The result of an action, from the executor of this agent. */
export function actionResultHandler(command: Command): CommandHandler {
  let kept: Kept | null = null;
  return {
    key: (idempotencyKey) => executorReceiptKey(command.agentId, idempotencyKey),
    prepare: async (deps, input, key) => {
      kept = await keep(deps, input, { command, key });
      const shown = kept?.shown;
      return (state, context) => decideActionResult(state, { ...command, shown }, context);
    },
    recorded: async () => await faultPoint('action.settled'),
    dropped: async ({ results }, { ref: { tenant }, actor }) => {
      if (!kept?.file) return;
      const { artifactId } = kept.file;
      const removal = { tenant, artifactId, actor, causation: command.requestId, outOfReach: () => null };
      await removeArtifact(results, removal).catch(results.onUnsettled);
    },
  };
}

/**
 * Stores an output that is too long for the history, if the result is going to be recorded. Null: the history has the output
 * itself, also where the tenant has no room for an artifact: the executor was told that its result counts.
 * @throws UnavailableError
 */
async function keep(
  deps: SendCommandDeps,
  { ref, actor, outOfReach }: SendCommandInput,
  { command, key }: { readonly command: Command; readonly key: string },
): Promise<Kept | null> {
  const { outcome, requestId: effectId } = command;
  if (outcome.kind !== 'completed' || !isTooLong(outcome.output)) return null;
  const { state } = await deps.sessions.refresh(ref);
  if (state.status !== 'open' || outOfReach(state, false) !== null) return null;
  if (findReceipt(state.receipts, key) !== undefined) return null;
  const tool = toolOf(state, command, { nowMs: deps.clock(), jitter: 0, workerId: null });
  if (tool === null) return null;
  const { signal } = new AbortController();
  // The executor sends it again when something is away.
  const whileAway = async <T>(work: () => Promise<T>): Promise<T> => await work();
  const of = { ref, session: state, tool, effectId, actor, signal, whileAway };
  const kept = await keptResult(deps.results, of, outcome.output);
  return kept.file === null ? null : kept;
}

/** The tool whose output the command would record as it is; null: none, or it is not accepted. */
function toolOf(state: SessionState, command: Command, context: TurnContext): string | null {
  const decision = decideActionResult(state, command, context);
  if (decision.kind !== 'accepted') return null;
  for (const { type, data } of decision.events) {
    if (type !== 'action.completed' || data.actionId !== command.actionId) continue;
    return data.kind === 'tool' && data.outcome.kind === 'completed' ? (data.toolName ?? 'tool') : null;
  }
  return null;
}
