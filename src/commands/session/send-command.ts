import type { AgentEvent } from '../../domain/agent/events.ts';
import type { ModelSelection } from '../../domain/agent/manifest.ts';
import type { AgentState } from '../../domain/agent/state.ts';
import type { ArtifactEvent } from '../../domain/artifact/events.ts';
import type { ArtifactState } from '../../domain/artifact/state.ts';
import type { BudgetEvent } from '../../domain/budget/events.ts';
import type { BudgetState } from '../../domain/budget/state.ts';
import type { Decision } from '../../domain/kernel/decision.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { budgetAskedFor, decideApprove, decideRespond, readRaise } from '../../domain/session/answer.ts';
import type { ApproveCommand, RespondCommand } from '../../domain/session/answer.ts';
import { decideActionResult } from '../../domain/session/claims.ts';
import type { ActionResultCommand } from '../../domain/session/claims.ts';
import { decideCancel, decideMessage } from '../../domain/session/decide.ts';
import type { CancelCommand, CommandReply, MessageCommand, MessageContext } from '../../domain/session/decide.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import { executorReceiptKey, findReceipt, mayHaveLeftSince, receiptKey } from '../../domain/session/receipts.ts';
import type { Receipt } from '../../domain/session/receipts.ts';
import { decideRetry } from '../../domain/session/retry.ts';
import type { RetryCommand } from '../../domain/session/retry.ts';
import type { OpenSession, SessionState } from '../../domain/session/state.ts';
import type { TurnContext } from '../../domain/turn/context.ts';
import type { Clock } from '../../lib/clock.ts';
import { faultPoint } from '../../lib/fault-points.ts';
import { newId } from '../../lib/ids.ts';
import { OlderNodesError } from '../../lib/older-nodes.ts';
import type { ArtifactReach } from '../artifact/deps.ts';
import { encodeCursor } from '../../streams/cursor.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { Repository } from '../repository.ts';
import { raiseBudget } from '../tenant/budgets.ts';
import type { ChangeTenantDeps } from '../tenant/change-tenant.ts';
import { resolveParts } from './message-files.ts';
import type { ResolvedParts, SentPart } from './message-files.ts';
import type { OlderReceipts } from './receipt-archive.ts';
import type { TurnPlace, TurnRunner } from './turn-runner.ts';
import { usedAgents } from './used-agents.ts';

/** A message as it is sent: what its files are is found out when it is accepted. */
type SentMessage = Omit<MessageCommand, 'parts'> & { readonly parts?: readonly SentPart[] | undefined };

export type SessionCommand =
  | ({ readonly type: 'message' } & SentMessage)
  | ({ readonly type: 'cancel' } & CancelCommand)
  | ({ readonly type: 'retry' } & RetryCommand)
  | ({ readonly type: 'approve' } & ApproveCommand)
  | ({ readonly type: 'respond' } & RespondCommand)
  /** Of the executor of this agent. */
  | ({ readonly type: 'action_result'; readonly agentId: string } & ActionResultCommand);

export interface SendCommandInput {
  readonly ref: AggregateRef;
  readonly command: SessionCommand;
  readonly idempotencyKey: string;
  /** SHA-256 of the canonical body without requestId. */
  readonly bodyHash: string;
  readonly actor: string;
  /**
   * Why the session is out of the caller's reach for this command; null: it is not. A repetition comes from somebody
   * who has reached it, whatever the session waits for by now.
   */
  readonly outOfReach: (session: OpenSession, isRepetition: boolean) => Rejection | null;
  /** The same of an artifact that a message names. */
  readonly fileOutOfReach: ArtifactReach;
}

export interface CommandAccepted {
  readonly kind: 'done';
  readonly turnId: string | null;
  readonly cursor: string;
  /** The first sender's, also when a repetition named another. */
  readonly requestId: string;
}

export interface SendCommandDeps extends ChangeTenantDeps {
  readonly budgets: Repository<BudgetState, BudgetEvent>;
  readonly agents: Repository<AgentState, AgentEvent>;
  readonly artifacts: Repository<ArtifactState, ArtifactEvent>;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly older: OlderReceipts;
  /** Whether the tenant takes no new message because it is about to be deleted. */
  readonly isDraining: (tenantId: string) => boolean;
  /** The tenant's selection, for turns whose manifest names no model; null: there is none. */
  readonly tenantModel: (tenantId: string) => ModelSelection | null;
  readonly runner: TurnRunner | null;
  readonly clock: Clock;
  /** Whether some node does not know the command: its read models would lack it for good. */
  readonly isNewTo: (command: 'retry') => boolean;
}

type Reply = Omit<CommandReply, 'first'> & { readonly first: Required<CommandReply>['first'] | null };

/** Accepts a command on a session: replays what was accepted before, else decides and records. */
export async function sendCommand(
  parts: SendCommandDeps,
  input: SendCommandInput,
): Promise<CommandAccepted | Rejection> {
  const { ref, command, bodyHash } = input;
  if (command.type === 'retry' && parts.isNewTo(command.type)) throw new OlderNodesError();
  const key = keyOf(input);
  for (;;) {
    const { receipt, lookedUpTo } = await findOlder(parts, input, key);
    if (receipt !== null) {
      parts.runner?.adopt(ref);
      return receipt.hash === bodyHash ? accepted(parts, ref, receipt) : used();
    }
    const own = command.type === 'message' ? command.manifest : undefined;
    const agents = await usedAgents(parts.agents, ref.tenant, own);
    const refusal = await raised(parts, input, key);
    if (refusal !== null) return refusal;
    const files = await filesOf(parts, input);
    const outcome = await record(parts, input, { key, lookedUpTo, agents, files });
    if (outcome !== 'retry') return outcome;
  }
}

/**
 * An answer that raises one of the tenant's budgets does so before it is recorded: the turn that continues then is let
 * through. Should the answer not be recorded after all, the same command again finds the budget raised.
 */
async function raised(
  parts: SendCommandDeps,
  { ref, command, actor }: SendCommandInput,
  key: string,
): Promise<Rejection | null> {
  if (command.type !== 'respond' || command.subject !== null) return null;
  const raise = readRaise(command.value);
  if (raise === null || raise === false) return null;
  // With everything acknowledged: the question may have come up on another node a moment ago.
  const { state } = await parts.sessions.refresh(ref);
  const budgetId = budgetAskedFor(state, command.interactionId);
  // A key that was used before raises nothing: what it is answered does not depend on the budget.
  const isUsed = state.status === 'open' && findReceipt(state.receipts, key) !== undefined;
  if (budgetId === null || isUsed) return null;
  const input = { tenantId: ref.tenant, actor, causation: command.requestId, budgetId, ...raise };
  const outcome = await raiseBudget(parts, input);
  return outcome.kind === 'rejected' ? outcome : null;
}

/** One key space for each subject, for each agent's executors, and for credentials without a subject. */
function keyOf({ command, idempotencyKey }: SendCommandInput): string {
  return command.type === 'action_result'
    ? executorReceiptKey(command.agentId, idempotencyKey)
    : receiptKey(command.subject, idempotencyKey);
}

async function record(
  parts: SendCommandDeps,
  input: SendCommandInput,
  context: Pick<DecideContext, 'key' | 'lookedUpTo' | 'agents' | 'files'>,
): Promise<CommandAccepted | Rejection | 'retry'> {
  const { ref, command, bodyHash: hash } = input;
  const { key } = context;
  const place = parts.runner?.reserve(ref.tenant) ?? null;
  try {
    const outcome = await parts.loop.execute<SessionState, SessionEvent, Reply>(parts.sessions, ref, {
      actor: input.actor,
      causation: command.requestId,
      decide: (state) => decide(state, { ...context, parts, input, place }),
      receipt: ({ turnId }) => ({ key, hash, requestId: command.requestId, turnId }),
    });
    // What was answered before, or stands in the way, may be a turn whose claim could not be confirmed.
    if (outcome.kind === 'rejected' || outcome.position === null) parts.runner?.adopt(ref);
    if (outcome.kind === 'rejected') return outcome;
    if (outcome.position === null) {
      return outcome.reply.first === null ? 'retry' : accepted(parts, ref, outcome.reply.first);
    }
    if (command.type === 'action_result') await faultPoint('action.settled');
    if (outcome.reply.claimed) place?.run(ref);
    const receipt = { requestId: command.requestId, turnId: outcome.reply.turnId, position: outcome.position };
    return accepted(parts, ref, receipt);
  } finally {
    place?.free();
  }
}

interface DecideContext {
  readonly parts: SendCommandDeps;
  readonly input: SendCommandInput;
  readonly key: string;
  /** Receipts that had left the fold up to here have been looked up. */
  readonly lookedUpTo: number;
  /** Agents that the message's own manifest uses as tools, or why one of them cannot be had. */
  readonly agents: Awaited<ReturnType<typeof usedAgents>>;
  /** The parts of the message, or why one of them cannot be had. */
  readonly files: ResolvedParts | Rejection;
  readonly place: TurnPlace | null;
}

/** The order that clients rely on: existence, idempotent replay, state. */
function decide(
  state: SessionState,
  { parts, input, key, lookedUpTo, agents, files, place }: DecideContext,
): Decision<SessionEvent, Reply> {
  const { command, bodyHash, outOfReach } = input;
  if (state.status === 'absent') return reject('not_found', 'No such session.');
  const first = findReceipt(state.receipts, key);
  const refusal = outOfReach(state, first !== undefined);
  if (refusal !== null) return refusal;
  if (first !== undefined)
    return first.hash === bodyHash
      ? { kind: 'unchanged', reply: { turnId: first.turnId, claimed: false, first } }
      : used();
  // The look-up was made on an older fold, and receipts have left since: this key's may be one of them.
  if (mayHaveLeftSince(state.receipts, key, lookedUpTo))
    return { kind: 'unchanged', reply: { turnId: null, claimed: false, first: null } };
  // A command that was accepted before is answered as it was, also when its files or agents have gone since.
  if (agents.kind === 'rejected') return agents;
  if (files.kind === 'rejected') return files;
  if (startsTurn(command) && parts.isDraining(input.ref.tenant)) return draining();
  const context = { nowMs: parts.clock(), jitter: Math.random(), workerId: place?.workerId ?? null };
  const decision = startsTurn(command)
    ? decideStart(state, { command, files }, { ...context, ...startOf(parts, input), agents: agents.agents })
    : decideOther(state, command, context);
  return decision.kind === 'rejected' ? decision : { ...decision, reply: { first: null, ...decision.reply } };
}

type StartCommand = Extract<SessionCommand, { type: 'message' | 'retry' }>;

function startsTurn(command: SessionCommand): command is StartCommand {
  return command.type === 'message' || command.type === 'retry';
}

function startOf(parts: SendCommandDeps, { ref }: SendCommandInput): Pick<MessageContext, 'newTurnId' | 'tenantModel'> {
  return { newTurnId: newId('tu'), tenantModel: parts.tenantModel(ref.tenant) };
}

function decideStart(
  state: SessionState,
  { command, files }: { readonly command: StartCommand; readonly files: ResolvedParts },
  context: MessageContext,
): Decision<SessionEvent, CommandReply> {
  return command.type === 'retry'
    ? decideRetry(state, command, context)
    : decideMessage(state, { ...command, parts: files.parts }, context);
}

async function filesOf(
  { artifacts }: SendCommandDeps,
  { ref, command, fileOutOfReach: outOfReach }: SendCommandInput,
): Promise<ResolvedParts | Rejection> {
  const parts = command.type === 'message' ? command.parts : undefined;
  return await resolveParts(artifacts, ref.tenant, { parts, outOfReach });
}

function decideOther(
  state: SessionState,
  command: Exclude<SessionCommand, StartCommand>,
  context: TurnContext,
): Decision<SessionEvent, CommandReply> {
  switch (command.type) {
    case 'cancel':
      return decideCancel(state, command, context);
    case 'approve':
      return decideApprove(state, command, context);
    case 'respond':
      return decideRespond(state, command, context);
    case 'action_result':
      return decideActionResult(state, command, context);
  }
}

/** Looks among the receipts that the fold no longer has whole. A key that is new costs no round trip, as a rule. */
export async function findOlder(
  parts: Pick<SendCommandDeps, 'sessions' | 'older'>,
  { ref, outOfReach }: Pick<SendCommandInput, 'ref' | 'outOfReach'>,
  key: string,
): Promise<{ receipt: Receipt | null; lookedUpTo: number }> {
  const { state } = await parts.sessions.load(ref);
  if (state.status === 'absent' || outOfReach(state, true) !== null) return { receipt: null, lookedUpTo: 0 };
  const { receipts } = state;
  const lookedUpTo = receipts.evictedUpTo;
  if (lookedUpTo === 0 || findReceipt(receipts, key) !== undefined) return { receipt: null, lookedUpTo };
  const receipt = await parts.older.find(ref, receipts, key);
  if (receipt === null) return { receipt, lookedUpTo };
  // Nothing is recorded, so nothing else tells that the session has been deleted elsewhere, or is another by now.
  const { state: newest } = await parts.sessions.refresh(ref);
  const isOfThis =
    newest.status === 'open' && outOfReach(newest, true) === null && receipt.position >= newest.createdPosition;
  return isOfThis ? { receipt, lookedUpTo } : { receipt: null, lookedUpTo: 0 };
}

function accepted(
  parts: SendCommandDeps,
  ref: AggregateRef,
  receipt: Pick<Receipt, 'requestId' | 'turnId' | 'position'>,
): CommandAccepted {
  const cursor = encodeCursor(ref, { shard: parts.sessions.store.shardOf(ref), position: receipt.position, index: 0 });
  return { kind: 'done', turnId: receipt.turnId, cursor, requestId: receipt.requestId };
}

function draining(): Rejection {
  return reject('tenant_draining', 'The tenant is about to be deleted and takes no new message.');
}

/** The refusal of a key that has another body already. */
export function used(): Rejection {
  return reject(
    'idempotency_conflict',
    'This idempotencyKey was used with another body. Use a new key for a new command.',
  );
}
