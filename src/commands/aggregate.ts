import type { z } from 'zod';
import { agentEventSchemas } from '../domain/agent/events.ts';
import type { AgentEvent } from '../domain/agent/events.ts';
import { evolveAgent, initialAgent } from '../domain/agent/state.ts';
import type { AgentState } from '../domain/agent/state.ts';
import { artifactEventSchemas } from '../domain/artifact/events.ts';
import type { ArtifactEvent } from '../domain/artifact/events.ts';
import { ARTIFACT_FOLD_VERSION, evolveArtifact, initialArtifact } from '../domain/artifact/state.ts';
import type { ArtifactState } from '../domain/artifact/state.ts';
import { budgetEventSchemas } from '../domain/budget/events.ts';
import type { BudgetEvent } from '../domain/budget/events.ts';
import { BUDGET_FOLD_VERSION, evolveBudgets, initialBudgets } from '../domain/budget/state.ts';
import type { BudgetState } from '../domain/budget/state.ts';
import type { DomainEvent, Evolve } from '../domain/kernel/decision.ts';
import { jsonChars } from '../domain/kernel/json-chars.ts';
import { quotaEventSchemas } from '../domain/quota/events.ts';
import type { QuotaEvent } from '../domain/quota/events.ts';
import { evolveQuota, initialQuota, QUOTA_FOLD_VERSION } from '../domain/quota/state.ts';
import type { QuotaState } from '../domain/quota/state.ts';
import { sandboxEventSchemas } from '../domain/sandbox/events.ts';
import type { SandboxEvent } from '../domain/sandbox/events.ts';
import { evolveRoster, initialRoster, ROSTER_FOLD_VERSION, rosterEventSchemas } from '../domain/sandbox/roster.ts';
import type { RosterEvent, RosterState } from '../domain/sandbox/roster.ts';
import { evolveSandbox, initialSandbox, SANDBOX_FOLD_VERSION } from '../domain/sandbox/state.ts';
import type { SandboxState } from '../domain/sandbox/state.ts';
import { sessionEventSchemas } from '../domain/session/events.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import { addReceipt } from '../domain/session/receipts.ts';
import type { Receipt } from '../domain/session/receipts.ts';
import { evolveSession, initialSession, SESSION_FOLD_VERSION } from '../domain/session/state.ts';
import type { OpenSession, SessionState } from '../domain/session/state.ts';
import { tenantEventSchemas } from '../domain/tenant/events.ts';
import type { TenantEvent } from '../domain/tenant/events.ts';
import { evolveTenant, initialTenant } from '../domain/tenant/state.ts';
import type { TenantState } from '../domain/tenant/state.ts';
import { vaultEventSchemas } from '../domain/vault/events.ts';
import type { VaultEvent } from '../domain/vault/events.ts';
import { evolveVault, initialVault, VAULT_FOLD_VERSION } from '../domain/vault/state.ts';
import type { VaultState } from '../domain/vault/state.ts';
import type { AggregateKind } from '../streams/subjects.ts';

/** What the command loop needs to know about a kind of aggregate. */
export interface AggregateType<S, E extends DomainEvent> {
  readonly kind: AggregateKind;
  readonly initial: S;
  readonly evolve: Evolve<S, E>;
  /** Checked before an append: an event that breaks its schema is a bug and must not reach the log. */
  readonly schemas: Readonly<Record<string, z.ZodType>>;
  /** How a stored receipt joins the state; absent where commands carry no idempotency key. */
  readonly withReceipt?: (state: S, receipt: Receipt) => S;
  /** Raised with the meaning of the folded state; null: the histories are short, no snapshots. */
  readonly foldVersion: number | null;
  /** Roughly how many bytes a folded state takes. */
  readonly weigh: (state: S) => number;
}

export const budgetType: AggregateType<BudgetState, BudgetEvent> = {
  kind: 'budget',
  initial: initialBudgets,
  evolve: evolveBudgets,
  schemas: budgetEventSchemas,
  foldVersion: BUDGET_FOLD_VERSION,
  weigh: ({ budgets, underWay, settled, allotments }) =>
    500 +
    budgets.length * 400 +
    (Object.keys(underWay).length + settled.length) * 300 +
    Object.values(allotments).reduce((sum, { drawn }) => sum + 400 + drawn.length * 40, 0),
};

export const tenantType: AggregateType<TenantState, TenantEvent> = {
  kind: 'tenant',
  initial: initialTenant,
  evolve: evolveTenant,
  schemas: tenantEventSchemas,
  foldVersion: null,
  weigh: (state) => (state.status === 'absent' ? 200 : 2_000 + state.executors.length * 400),
};

export const agentType: AggregateType<AgentState, AgentEvent> = {
  kind: 'agent',
  initial: initialAgent,
  evolve: evolveAgent,
  schemas: agentEventSchemas,
  foldVersion: null,
  weigh: (state) => (state.status === 'absent' ? 200 : 1_000 + jsonChars(state.manifest) * CHAR_BYTES),
};

export const artifactType: AggregateType<ArtifactState, ArtifactEvent> = {
  kind: 'artifact',
  initial: initialArtifact,
  evolve: evolveArtifact,
  schemas: artifactEventSchemas,
  foldVersion: ARTIFACT_FOLD_VERSION,
  weigh: (state) => {
    if (state.status === 'absent') return 200;
    return 1_000 + state.versions.reduce((sum, { objects }) => sum + 500 + objects.length * 50, 0);
  },
};

export const quotaType: AggregateType<QuotaState, QuotaEvent> = {
  kind: 'quota',
  initial: initialQuota,
  evolve: evolveQuota,
  schemas: quotaEventSchemas,
  foldVersion: QUOTA_FOLD_VERSION,
  weigh: ({ reservations, removals }) =>
    500 + Object.keys(reservations).length * 300 + Object.keys(removals).length * 150,
};

export const vaultType: AggregateType<VaultState, VaultEvent> = {
  kind: 'vault',
  initial: initialVault,
  evolve: evolveVault,
  schemas: vaultEventSchemas,
  foldVersion: VAULT_FOLD_VERSION,
  weigh: (state) =>
    state.status === 'open' ? 1_000 + Object.keys(state.credentials).length * 2_500 + state.gone.length * 60 : 500,
};

export const sandboxType: AggregateType<SandboxState, SandboxEvent> = {
  kind: 'sandbox',
  initial: initialSandbox,
  evolve: evolveSandbox,
  schemas: sandboxEventSchemas,
  foldVersion: SANDBOX_FOLD_VERSION,
  weigh: (state) => (state.status === 'absent' ? 200 : 2_000 + state.sessions.length * 100 + CALL_BYTES),
};

/** What the newest call of a sandbox may have returned. */
const CALL_BYTES = 60_000;

/** Which sandboxes a tenant has: an aggregate of its own. */
export const rosterType: AggregateType<RosterState, RosterEvent> = {
  kind: 'sandbox',
  initial: initialRoster,
  evolve: evolveRoster,
  schemas: rosterEventSchemas,
  foldVersion: ROSTER_FOLD_VERSION,
  weigh: ({ sandboxes }) => 200 + Object.keys(sandboxes).length * 150,
};

const RECEIPT_BYTES = 300;
const FORK_BYTES = 400;
const SESSION_ARTIFACT_BYTES = 100;
/** Of a character of JSON, with the objects that it becomes: 1.15 were measured of manifests and declarations of tools. */
const CHAR_BYTES = 1.2;

export const sessionType: AggregateType<SessionState, SessionEvent> = {
  kind: 'session',
  initial: initialSession,
  evolve: evolveSession,
  schemas: sessionEventSchemas,
  withReceipt: (state, receipt) =>
    state.status === 'absent' ? state : { ...state, receipts: addReceipt(state.receipts, receipt) },
  foldVersion: SESSION_FOLD_VERSION,
  weigh: (state) => {
    if (state.status === 'absent') return 200;
    const { conversation, receipts, forks, origin, artifacts } = state;
    const kept = receipts.chunks.reduce((sum, chunk) => sum + chunk.length, 0);
    return (
      2_000 +
      conversation.chars * 2 +
      charsBeside(state) * CHAR_BYTES +
      kept * RECEIPT_BYTES +
      (Object.keys(forks).length + (origin?.ancestry.length ?? 0)) * FORK_BYTES +
      artifacts.count * SESSION_ARTIFACT_BYTES +
      receipts.left.reduce((sum, pairs) => sum + pairs.length, 0) * 8
    );
  },
};

/**
 * What a session holds beside its conversation, and what sends it decides the size of: characters of JSON. Of values that
 * stay while what holds them changes with each event, so that the counts are remembered.
 */
function charsBeside({ manifest, agents, mcp, queue, turn, failed }: OpenSession): number {
  const threads = [...Object.values(turn?.threads ?? {}), ...(failed === null ? [] : [failed.root])];
  const parts = [
    ...[manifest, agents, ...queue],
    ...Object.values(mcp ?? {}).map(({ tools }) => tools),
    ...[turn?.manifest, turn?.agents, ...Object.values(turn?.work.actions ?? {})],
    ...[failed?.manifest, failed?.agents],
    ...threads.flatMap((thread) => [thread.mcp.tools, thread.mcp.calls, thread.openToolCalls]),
  ];
  const conversations = threads.reduce((sum, { conversation }) => sum + (conversation?.chars ?? 0), 0);
  return parts.reduce((sum, part) => sum + (part == null ? 0 : jsonChars(part)), conversations);
}
