import type { AgentEvent } from '../../domain/agent/events.ts';
import { sandboxToolsOf } from '../../domain/agent/manifest.ts';
import type { UsedAgents } from '../../domain/agent/manifest.ts';
import { needsOf } from '../../domain/agent/needs.ts';
import type { ManifestNeed } from '../../domain/agent/needs.ts';
import type { AgentState } from '../../domain/agent/state.ts';
import { reject } from '../../domain/kernel/rejection.ts';
import type { Rejection } from '../../domain/kernel/rejection.ts';
import { decideOpenSession, sameVaults } from '../../domain/session/decide.ts';
import type { SessionEvent } from '../../domain/session/events.ts';
import type { SessionState } from '../../domain/session/state.ts';
import type { VaultEvent } from '../../domain/vault/events.ts';
import type { VaultState } from '../../domain/vault/state.ts';
import { requireKnown } from '../../lib/older-nodes.ts';
import type { AggregateRef } from '../../streams/subjects.ts';
import type { CommandLoop, Executed } from '../execute.ts';
import type { Repository } from '../repository.ts';
import type { SessionSandboxes, SessionSandboxInput } from '../sandbox/session-sandbox.ts';
import { refuseVaults } from './session-vaults.ts';
import { usedAgents } from './used-agents.ts';

export interface OpenSessionInput {
  readonly ref: AggregateRef;
  readonly agentId: string;
  /** Whose session it is to be. */
  readonly subject: string | null;
  /** The person that the request acts for; null: the tenant itself. */
  readonly actsFor: string | null;
  readonly info: Readonly<Record<string, unknown>>;
  readonly labels: Readonly<Record<string, string>>;
  /** Vaults whose credentials its tools may use. */
  readonly vaultIds: string[];
  /** What it says about its sandbox, and what the caller may attach. */
  readonly sandbox: Pick<SessionSandboxInput, 'wanted' | 'outOfReach' | 'artifactReach'>;
  /** SHA-256 of the canonical body without requestId, labels and vaultIds, which may change. */
  readonly bodyHash: string;
  readonly actor: string;
  readonly requestId: string;
}

export interface OpenSessionDeps {
  readonly loop: CommandLoop;
  readonly agents: Repository<AgentState, AgentEvent>;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly vaults: Repository<VaultState, VaultEvent>;
  /** Whether some node does not know that a session has it, or an agent's manifest: it would run turns without. */
  readonly isNew: (what: ManifestNeed | 'vaults') => boolean;
  readonly sandboxes: SessionSandboxes;
}

/** Opens a session on the agent's newest version, or answers with the existing one. */
export async function openSession(deps: OpenSessionDeps, input: OpenSessionInput): Promise<Executed<null> | Rejection> {
  const { ref, agentId, actor, requestId: causation, actsFor, sandbox: _sandbox, ...command } = input;
  const meta = { actor, causation };
  if (command.vaultIds.length > 0) requireKnown(deps.isNew, ['vaults']);
  for (;;) {
    const { state: known } = await deps.sessions.load(ref);
    const refusal = await vaultRefusal(deps, input, known);
    const basis = await basisOf(deps, { tenant: ref.tenant, agentId, known });
    const made = basis.kind === 'rejected' ? basis : await sandboxOf(deps, input, { known, opening: basis.opening });
    const outcome = await deps.loop.execute<SessionState, SessionEvent, 'retry' | null>(deps.sessions, ref, {
      ...meta,
      decide: (state) => {
        // Opened, or deleted, on another node: its agents were looked up for the other case.
        if (state.status !== known.status) return { kind: 'unchanged', reply: 'retry' };
        if (basis.kind === 'rejected') return basis;
        if (made.kind === 'rejected') return made;
        const { sandbox } = made;
        const own = sandbox === undefined ? {} : { sandbox };
        const decision = decideOpenSession(state, { ...command, ...basis.opening, ...own, agentId }, actsFor);
        return decision.kind === 'accepted' ? (refusal ?? decision) : decision;
      },
    });
    // What was made for a session that another request has opened meanwhile, or that was refused, is removed again.
    const isUsed = outcome.kind === 'done' && outcome.position !== null;
    if (!isUsed && known.status === 'absent' && made.kind === 'done' && made.sandbox?.own === true) {
      await deps.sandboxes.leave({ tenant: ref.tenant, sessionId: ref.id, sandbox: made.sandbox, ...meta });
    }
    if (outcome.kind === 'rejected') return outcome;
    if (outcome.reply !== 'retry') return { ...outcome, reply: outcome.reply };
  }
}

/** Vaults that a session already has may have been deleted since: only newly named ones are checked. */
async function vaultRefusal(
  { vaults }: OpenSessionDeps,
  { ref, vaultIds, subject, actsFor }: OpenSessionInput,
  known: SessionState,
): Promise<Rejection | null> {
  if (vaultIds.length === 0 || (known.status === 'open' && sameVaults(known.vaultIds, vaultIds))) return null;
  return await refuseVaults(vaults, { tenant: ref.tenant, vaultIds, subject, actsFor });
}

/** The sandbox of a new session; an existing one keeps its own. */
async function sandboxOf(
  deps: OpenSessionDeps,
  { ref, subject, actor, requestId: causation, sandbox }: OpenSessionInput,
  { known, opening }: { readonly known: SessionState; readonly opening: Opening },
) {
  if (known.status !== 'absent') return { kind: 'done' as const, sandbox: undefined };
  const { manifest } = opening;
  const usesTools = sandboxToolsOf(manifest).length > 0;
  const standard = manifest.sandbox ?? (usesTools ? ({ kind: 'virtual' } as const) : undefined);
  const hasOne = sandbox.wanted === undefined ? standard !== undefined : sandbox.wanted !== false;
  if (hasOne) requireKnown(deps.isNew, ['sandboxes']);
  return await deps.sandboxes.prepare({
    ...{ tenant: ref.tenant, sessionId: ref.id, subject, actor, causation, ...sandbox },
    standard,
  });
}

type Opening = AgentVersion & { readonly agents?: UsedAgents };

/** What a new session would be opened with; for an existing one, what it was opened with. */
async function basisOf(
  deps: OpenSessionDeps,
  { tenant, agentId, known }: { readonly tenant: string; readonly agentId: string; readonly known: SessionState },
): Promise<{ readonly kind: 'found'; readonly opening: Opening } | Rejection> {
  if (known.status !== 'absent') return { kind: 'found', opening: withAgents(versionOf(known), known.agents) };
  const agent = await savedAgent(deps, tenant, agentId);
  if (agent === null)
    return reject('not_found', `No agent ${agentId} that can open sessions. Save it with PUT /v1/agents first.`);
  const used = await usedAgents(deps.agents, tenant, agent.manifest);
  if (used.kind === 'rejected') return used;
  const manifests = [agent.manifest, ...Object.values(used.agents ?? {}).map(({ manifest }) => manifest)];
  requireKnown(deps.isNew, manifests.flatMap(needsOf));
  return { kind: 'found', opening: withAgents(agent, used.agents) };
}

function withAgents(version: AgentVersion, agents: UsedAgents | undefined): Opening {
  return agents === undefined ? version : { ...version, agents };
}

type AgentVersion = Pick<Extract<SessionState, { status: 'open' }>, 'agentVersion' | 'manifestHash' | 'manifest'>;

/** Nothing else of the session: the command is compared with it. */
function versionOf({ agentVersion, manifestHash, manifest }: AgentVersion): AgentVersion {
  return { agentVersion, manifestHash, manifest };
}

/** The agent's fold with everything acknowledged anywhere: another node may have saved a version a moment ago. */
async function savedAgent(deps: OpenSessionDeps, tenant: string, agentId: string): Promise<AgentVersion | null> {
  const { state } = await deps.agents.refresh({ tenant, kind: 'agent', id: agentId });
  if (state.status !== 'saved') return null;
  return { agentVersion: state.version, manifestHash: state.manifestHash, manifest: state.manifest };
}
