import type { AgentRef } from '../action/events.ts';
import type { Manifest, UsedAgents } from '../agent/manifest.ts';
import { deriveId } from '../kernel/ids.ts';
import type { ExecPath } from '../sandbox/exec-path.ts';
import { agentIdOf, byAgent, manifestOf } from './agents.ts';
import type { Conversation } from './conversation.ts';
import type { TurnEvent, TurnPlan } from './events.ts';
import type { McpServerState, McpTool } from './mcp-events.ts';
import type { ActiveTurn } from './state.ts';
import { ROOT } from './thread.ts';
import type { Thread } from './thread.ts';

/** MCP servers as a session knows them. */
export type KnownMcpServers = Readonly<Record<string, KnownMcpServer>>;

export interface KnownMcpServer {
  /** Null: it has been listed only. */
  readonly state: McpServerState | null;
  readonly reason: string | null;
  /** As they were listed the last time; null: never. */
  readonly tools: readonly McpTool[] | null;
}

/** What a turn reads from the session that it runs in. */
export interface SessionOfTurn {
  readonly agentId: string;
  readonly manifest: Manifest;
  /** Those that the manifest uses as tools. */
  readonly agents?: UsedAgents | undefined;
  readonly conversation: Conversation;
  /** What the session knows of its MCP servers, by `mcpKey`; absent: nothing. */
  readonly mcp?: KnownMcpServers | undefined;
  /** Whether an inherited conversation comes before it. */
  readonly inherits: boolean;
  /** Where its built-in tools run; absent: no sandbox. */
  readonly sandbox?: { readonly sandboxId: string } | undefined;
  /** Where its history has the calls in its sandbox; absent: there are none. */
  readonly execs?: ExecPath;
}

interface OpenToTurns extends SessionOfTurn {
  readonly status: 'open';
  readonly turn: ActiveTurn | null;
  /** Turns that start when the active one has ended, in their order; without a plan: one that starts in this commit. */
  readonly queue: readonly { readonly plan: TurnPlan | null }[];
}

/** A decision about a session, as far as its turns know it: the state after what has been added, and what was added. */
export interface TurnDraft {
  readonly state: { readonly status: 'absent' } | OpenToTurns;
  readonly events: readonly unknown[];
  readonly add: (event: TurnEvent) => void;
}

/** The active turn of a draft, at its root thread; null: none runs. */
export function running(draft: TurnDraft): Running | null {
  const { state } = draft;
  return state.status === 'open' && state.turn !== null ? new Running(draft, state.turn.turnId, ROOT) : null;
}

/**
 * A cursor over a running turn, at one of its threads. Session, turn and thread always reflect the events that were
 * added, and exist for as long as the thread does: once a step has ended it, nothing more is read from it.
 */
export class Running {
  readonly turnId: string;
  readonly threadId: string;
  readonly #draft: TurnDraft;

  constructor(draft: TurnDraft, turnId: string, threadId: string) {
    this.#draft = draft;
    this.turnId = turnId;
    this.threadId = threadId;
  }

  /** Whether the thread has ended, by itself or with its turn. */
  get isOver(): boolean {
    return this.#now()?.turn.threads[this.threadId] === undefined;
  }

  get session(): SessionOfTurn {
    return this.#here().session;
  }

  get turn(): ActiveTurn {
    return this.#here().turn;
  }

  get thread(): Thread {
    const thread = this.turn.threads[this.threadId];
    if (thread === undefined) throw new Error(`the thread ${this.threadId} of the turn has ended`);
    return thread;
  }

  /** The manifest that the thread follows. */
  get manifest(): Manifest {
    const { session, turn } = this.#here();
    return manifestOf(session, turn, this.thread);
  }

  get agentId(): string {
    return agentIdOf(this.session, this.thread);
  }

  /** What the thread's model is shown: its own conversation, or the session's. */
  get conversation(): Conversation {
    return this.thread.conversation ?? this.session.conversation;
  }

  /** What an event of the thread says about where it happened. */
  get stamp(): { readonly turnId: string; readonly agent?: AgentRef } {
    return { turnId: this.turnId, ...byAgent(this.thread) };
  }

  add(event: TurnEvent): void {
    this.#draft.add(event);
  }

  /** The same turn at another thread. */
  at(threadId: string): Running {
    return new Running(this.#draft, this.turnId, threadId);
  }

  /** The same turn at each of its threads. */
  threads(): Running[] {
    return Object.keys(this.turn.threads).map((threadId) => this.at(threadId));
  }

  /** The id of the next action, interaction or delegation. */
  nextId(prefix: 'ac' | 'in' | 'dg'): string {
    return deriveId(prefix, this.turnId, this.turn.made + 1);
  }

  #now(): { readonly session: SessionOfTurn; readonly turn: ActiveTurn } | null {
    const { state } = this.#draft;
    if (state.status === 'absent' || state.turn?.turnId !== this.turnId) return null;
    return { session: state, turn: state.turn };
  }

  #here(): { readonly session: SessionOfTurn; readonly turn: ActiveTurn } {
    const now = this.#now();
    if (now === null) throw new Error(`the turn ${this.turnId} has ended`);
    return now;
  }
}
