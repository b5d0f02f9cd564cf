import type { AgentEvent } from '../../domain/agent/events.ts';
import type { ModelSelection } from '../../domain/agent/manifest.ts';
import type { ManifestNeed } from '../../domain/agent/needs.ts';
import type { AgentState } from '../../domain/agent/state.ts';
import type { ArtifactEvent } from '../../domain/artifact/events.ts';
import type { ArtifactState } from '../../domain/artifact/state.ts';
import type { BudgetEvent } from '../../domain/budget/events.ts';
import type { BudgetState } from '../../domain/budget/state.ts';
import type { Decision } from '../../domain/kernel/decision.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import type { ApproveCommand, RespondCommand } from '../../domain/session/answer.ts';
import type { ActionResultCommand } from '../../domain/session/claims.ts';
import type { CancelCommand, CommandReply, MessageCommand } from '../../domain/session/decide.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { RetryCommand } from '../../domain/session/retry.ts';
import type { OpenSession, SessionState } from '../../domain/session/state.ts';
import type { TurnContext } from '../../domain/turn/context.ts';
import type { Clock } from '../../lib/clock.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { ArtifactDeps, ArtifactReach } from '../artifact/deps.ts';
import type { Repository } from '../repository.ts';
import type { ChangeTenantDeps } from '../tenant/change-tenant.ts';
import type { SentPart } from './message-files.ts';
import type { OlderReceipts } from './receipt-archive.ts';
import type { TurnRunner } from './turn-runner.ts';

/** A message as it is sent: its files are resolved when it is accepted. */
export type SentMessage = Omit<MessageCommand, 'parts'> & { readonly parts?: readonly SentPart[] | undefined };

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
   * Why the caller may not reach the session with this command; null: it may. The sender of a repetition has reached it
   * before, whatever the session waits for by now.
   */
  readonly outOfReach: (session: OpenSession, isRepetition: boolean) => Rejection | null;
  /** The same for an artifact that a message names. */
  readonly fileOutOfReach: ArtifactReach;
}

export interface CommandAccepted {
  readonly kind: 'done';
  readonly turnId: string | null;
  readonly cursor: string;
  /** The first sender's, even when a repetition named another. */
  readonly requestId: string;
}

export interface SendCommandDeps extends ChangeTenantDeps {
  readonly budgets: Repository<BudgetState, BudgetEvent>;
  readonly agents: Repository<AgentState, AgentEvent>;
  readonly artifacts: Repository<ArtifactState, ArtifactEvent>;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly older: OlderReceipts;
  /** Where results of tools are kept that are too long for the history. */
  readonly results: ArtifactDeps;
  /** Whether the tenant takes no new message because it is about to be deleted. */
  readonly isDraining: (tenantId: string) => boolean;
  /** The tenant's selection, for turns whose manifest names no model; null: there is none. */
  readonly tenantModel: (tenantId: string) => ModelSelection | null;
  readonly runner: TurnRunner | null;
  readonly clock: Clock;
  /** Whether some node does not know what a manifest has: it could not take over the turn of a message that has it. */
  readonly isNew: (what: ManifestNeed) => boolean;
}

/** Decides on the fold; called again when another writer was faster. */
export type Decide = (state: SessionState, context: TurnContext) => Decision<SessionEvent, CommandReply>;

/** What one kind of command does beyond what they all do (send-command.ts): a file each in `handlers/`. */
export interface CommandHandler {
  /** Its receipt's key: idempotency keys of different senders are distinct. */
  readonly key: (idempotencyKey: string) => string;
  /**
   * Gets what the decision needs from other aggregates; may be repeated. A rejection refuses the command at once, while
   * one from `decide` comes after the answer to a repetition. @throws OlderNodesError
   */
  readonly prepare: (deps: SendCommandDeps, input: SendCommandInput, key: string) => Promise<Decide | Rejection>;
  /** Once it is recorded, before it is answered. */
  readonly recorded?: () => Promise<void>;
  /** It is known not to have been recorded as it was prepared: whatever was stored for it is of no use. */
  readonly dropped?: (deps: SendCommandDeps, input: SendCommandInput) => Promise<void>;
}
