import type { Manifest, UsedAgents } from '../agent/manifest.ts';
import { Draft } from '../kernel/decision.ts';
import type { EventMeta } from '../kernel/decision.ts';
import { toTimestamp } from '../kernel/time.ts';
import { addMessage, emptyConversation, evolveConversation, measured } from '../turn/conversation.ts';
import type { Conversation, FileRef } from '../turn/conversation.ts';
import type { TurnEvent, TurnPlan } from '../turn/events.ts';
import { evolveTurn, rootOf } from '../turn/state.ts';
import type { ActiveTurn } from '../turn/state.ts';
import { resumeThread, ROOT, usageAfter } from '../turn/thread.ts';
import type { Thread } from '../turn/thread.ts';
import type { KnownMcpServers } from '../turn/running.ts';
import { ZERO_TOTAL } from '../turn/usage.ts';
import type { Usage } from '../turn/usage.ts';
import { evolveRecorded, noneRecorded } from './artifact-events.ts';
import type { RecordedArtifacts } from './artifact-events.ts';
import { isCanonical } from './canonical.ts';
import type { SessionEvent, SessionSandbox } from './events.ts';
import type { FilesRef } from '../sandbox/events.ts';
import { withCall } from '../sandbox/exec-path.ts';
import type { ExecPath } from '../sandbox/exec-path.ts';
import { withFork, withoutFork } from './fork-state.ts';
import type { Forks } from './fork-state.ts';
import type { ForkOrigin } from './fork-events.ts';
import { evolveServers, withKnownTools } from './mcp-servers.ts';
import { messageFiles, messageText } from './message.ts';
import { emptyReceipts } from './receipts.ts';
import type { ReceiptBook } from './receipts.ts';

export type TurnOutcome = 'completed' | 'failed' | 'cancelled';

export interface LastTurn {
  readonly turnId: string;
  readonly outcome: TurnOutcome;
  readonly endedAt: string;
}

/** A turn that failed and can be resumed: with the manifest that its message brought, from where its agent stopped. */
export interface FailedTurn extends Pick<ActiveTurn, 'turnId' | 'manifest' | 'agents'> {
  readonly root: Thread;
}

/** What a session is opened with; it keeps the manifest that it was created with. */
export interface SessionOpening {
  readonly agentId: string;
  readonly agentVersion: number;
  readonly manifestHash: string;
  readonly manifest: Manifest;
  /** Those that the manifest uses as tools, as they were when the session was opened. */
  readonly agents?: UsedAgents | undefined;
  readonly subject: string | null;
  readonly info: Readonly<Record<string, unknown>>;
  readonly labels: Readonly<Record<string, string>>;
  /** What a repeated PUT is compared with. */
  readonly bodyHash: string;
  /** Vaults whose credentials its tools may use; absent: none. */
  readonly vaultIds?: string[] | undefined;
  /** Where its sandbox tools run; absent: no sandbox. */
  readonly sandbox?: SessionSandbox | undefined;
}

/** A message that waits for its turn; without a plan, the turn starts in the same commit. */
export interface QueuedMessage {
  readonly turnId: string;
  readonly text: string;
  /** Absent: it has none. */
  readonly files?: readonly FileRef[];
  readonly traceparent?: string;
  readonly plan: TurnPlan | null;
}

export interface OpenSession extends SessionOpening {
  readonly status: 'open';
  readonly createdAt: string;
  readonly updatedAt: string;
  /** Position of the commit that opened it: older cursors belong to an earlier session with the same id. */
  readonly createdPosition: number;
  /** The place of the newest event of the canonical history; null while it is empty. */
  readonly last: { readonly position: number; readonly index: number } | null;
  readonly turn: ActiveTurn | null;
  /** Messages whose turns have not started, in the order of their turns. */
  readonly queue: readonly QueuedMessage[];
  readonly lastTurn: LastTurn | null;
  /** What the last turn left when it failed: another turn may continue from there. Null: it did not fail. */
  readonly failed: FailedTurn | null;
  /** Total over all turns, including the cost of abandoned calls. */
  readonly usage: Usage;
  readonly receipts: ReceiptBook;
  /** Its own part; what a fork inherits comes before it, as long as `inherits` says so (docs/decisions/0013). */
  readonly conversation: Conversation;
  /** What the history says about the session's artifacts. */
  readonly artifacts: RecordedArtifacts;
  /** Of a fork: the history that comes before its own. */
  readonly origin: ForkOrigin | null;
  /** Whether its model is shown the inherited conversation; a compaction removes it. */
  readonly inherits: boolean;
  /** What its sandbox held after its newest call; null: nothing. Absent: it has made none. */
  readonly files?: FilesRef | null;
  /** Where its history has the calls in its sandbox; absent: there are none. */
  readonly execs?: ExecPath;
  /** What it knows of MCP servers; absent: nothing. */
  readonly mcp?: KnownMcpServers | undefined;
  /** Existing forks of this session, by id. */
  readonly forks: Forks;
}

/** A session that does not exist. `since`: position of the deletion of the previous one. */
export interface AbsentSession {
  readonly status: 'absent';
  readonly since?: number;
}

/** absent → open. An open session is idle (no turn) or has exactly one active turn. */
export type SessionState = AbsentSession | OpenSession;

export const initialSession: SessionState = { status: 'absent' };

/** Part of a snapshot's name: raise it whenever the meaning of the folded state changes. */
export const SESSION_FOLD_VERSION = 14;

/** Total: it never throws, and an event that cannot apply changes nothing. */
export function evolveSession(state: SessionState, event: SessionEvent, meta: EventMeta): SessionState {
  if (event.type === 'session.created') {
    return state.status === 'absent' ? openSession(event.data, meta) : state;
  }
  if (event.type === 'session.deleted') return { status: 'absent', since: meta.position };
  if (state.status === 'absent') return state;
  const last = isCanonical(event.type) ? { position: meta.position, index: meta.index } : state.last;
  const next = { ...state, last, updatedAt: meta.at };
  switch (event.type) {
    case 'session.updated':
      return { ...next, ...event.data };
    case 'session.forked':
      return { ...next, forks: withFork(state, event.data, meta) };
    case 'session.fork.released':
      return { ...next, forks: withoutFork(state.forks, event.data) };
    case 'command.message': {
      const files = messageFiles(event.data);
      const { turnId, traceparent } = event.data;
      const attached = {
        ...(files === undefined ? {} : { files }),
        ...(traceparent === undefined ? {} : { traceparent }),
      };
      const message = { turnId, text: messageText(event.data), ...attached, plan: null };
      return { ...next, queue: [...state.queue, message] };
    }
    case 'turn.queued':
      return { ...next, queue: state.queue.map((message) => planned(message, event.data)) };
    case 'turn.started':
      return started(next, event, meta);
    case 'command.cancel':
    case 'command.retry':
      return next;
    case 'artifact.created':
    case 'artifact.deleted':
      return { ...next, artifacts: evolveRecorded(state.artifacts, event) };
    case 'turn.completed':
      return ended(next, event.data.turnId, { outcome: 'completed', at: meta.at });
    case 'turn.failed':
      return ended(next, event.data.turnId, { outcome: 'failed', at: meta.at });
    case 'turn.cancelled':
      return ended(next, event.data.turnId, { outcome: 'cancelled', at: meta.at });
    default:
      return evolveWork(next, event, meta);
  }
}

/** What is being decided about a session, and the session as it will be afterwards. */
export type SessionDraft = Draft<SessionState, SessionEvent>;

export function draftOf(state: SessionState, nowMs: number): SessionDraft {
  return new Draft(state, evolveSession, toTimestamp(nowMs));
}

/** What happens within a turn. */
function evolveWork(state: OpenSession, recorded: TurnEvent, meta: EventMeta): OpenSession {
  const event = recorded.type === 'mcp.tools.listed' ? withKnownTools(state.mcp, recorded) : recorded;
  const mcp = evolveServers(state.mcp, event);
  const isRoots = ofRoot(event);
  const turn = evolveTurn(state.turn, event, meta);
  const conversation = isRoots ? evolveConversation(state.conversation, event) : state.conversation;
  const isMeasured = isRoots && event.type === 'message.assistant' && turn !== null;
  return {
    ...state,
    conversation: isMeasured ? measured(conversation, rootOf(turn).visibleTokens) : conversation,
    // What is cut starts with what is inherited, so all of that is in the summary.
    inherits: state.inherits && !(isRoots && event.type === 'conversation.compacted' && event.data.head === 0),
    turn,
    ...(event.type === 'sandbox.exec' ? withExec(state, event.data, meta) : {}),
    ...(mcp === state.mcp ? {} : { mcp }),
    usage: usageAfter(state.usage, event),
  };
}

function withExec(
  { execs = [] }: OpenSession,
  { files, earlier: { n } }: Extract<TurnEvent, { type: 'sandbox.exec' }>['data'],
  { position }: EventMeta,
): Pick<OpenSession, 'files' | 'execs'> {
  return { files, execs: withCall(execs, { n, position }) };
}

/** The conversations of agents used as tools belong to their threads; only how these ended is part of the session's. */
function ofRoot(event: TurnEvent): boolean {
  return event.type === 'delegation.completed' || !('agent' in event.data) || event.data.agent === undefined;
}

function planned(message: QueuedMessage, plan: TurnPlan): QueuedMessage {
  return message.turnId === plan.turnId ? { ...message, plan } : message;
}

function started(
  state: OpenSession,
  event: Extract<SessionEvent, { type: 'turn.started' }>,
  meta: EventMeta,
): OpenSession {
  const { turnId } = event.data;
  const message = state.queue.find((queued) => queued.turnId === turnId);
  const queue = state.queue.filter((queued) => queued.turnId !== turnId);
  const conversation =
    message === undefined ? state.conversation : addMessage(state.conversation, message.text, message.files);
  const turn = withStand(state.failed, evolveTurn(state.turn, event, meta));
  const sender = message?.traceparent;
  const begun = turn === null || sender === undefined ? turn : { ...turn, sender };
  return { ...state, queue, conversation, failed: null, turn: begun };
}

/** A turn that continues the failed one starts where that one stopped. */
function withStand(failed: FailedTurn | null, turn: ActiveTurn | null): ActiveTurn | null {
  if (turn === null || failed === null || turn.retryOf !== failed.turnId) return turn;
  return { ...turn, threads: { ...turn.threads, [ROOT]: resumeThread(failed.root, turn.startedAt) } };
}

function ended(state: OpenSession, turnId: string, end: { outcome: TurnOutcome; at: string }): OpenSession {
  // A turn that was cancelled before it started did not run.
  if (state.turn?.turnId !== turnId)
    return { ...state, queue: state.queue.filter((queued) => queued.turnId !== turnId) };
  const { manifest, agents } = state.turn;
  const failed = end.outcome === 'failed' ? { turnId, manifest, agents, root: rootOf(state.turn) } : null;
  return { ...state, turn: null, failed, lastTurn: { turnId, outcome: end.outcome, endedAt: end.at } };
}

function openSession(
  { origin, ...data }: Extract<SessionEvent, { type: 'session.created' }>['data'],
  meta: EventMeta,
): OpenSession {
  return {
    status: 'open',
    ...data,
    createdAt: meta.at,
    updatedAt: meta.at,
    createdPosition: meta.position,
    last: null,
    turn: null,
    queue: [],
    lastTurn: null,
    failed: null,
    usage: ZERO_TOTAL,
    receipts: emptyReceipts,
    conversation: emptyConversation,
    artifacts: noneRecorded,
    origin: origin ?? null,
    inherits: origin !== undefined && origin.ancestry.length > 0,
    forks: {},
  };
}
