import type { EventRecord, MessageAssistant, TurnCompleted, TurnPaused } from '../../../client/client.ts';

export type AgentRef = NonNullable<MessageAssistant['payload']['agent']>;
export type AskedInteraction = TurnPaused['payload']['interactions'][number];
export type Usage = TurnCompleted['payload']['usage'];

/** What every part of a conversation knows: the record that began it, and who worked. */
interface Base {
  /** Stays the same while the entry changes. */
  readonly key: string;
  readonly cursor: string;
  /** RFC 3339, of the record that began it. */
  readonly at: string;
  readonly turnId: string | null;
  /** An agent used as a tool; absent: the session's own. */
  readonly agent?: AgentRef | undefined;
}

export interface UserEntry extends Base {
  readonly kind: 'user';
  readonly text: string;
  readonly files: readonly { readonly artifactId: string; readonly version: number }[];
  readonly subject?: string | undefined;
  /** The turn that it waits behind; null: it is being answered, or was. */
  readonly behind: string | null;
  /** It came with a manifest for its turn only. */
  readonly hasManifest: boolean;
}

export interface AssistantEntry extends Base {
  readonly kind: 'assistant';
  readonly text: string;
  readonly reasoning?: string | undefined;
  readonly isTruncated: boolean;
  readonly modelCallId?: string | undefined;
}

export type ToolState = 'called' | 'offered' | 'claimed' | 'uncertain' | 'completed' | 'failed' | 'ended';

/** What a sandbox measured while it ran a call. */
export interface Exec {
  readonly durationMs: number;
  readonly cpuMs: number;
  readonly outcome: string;
  readonly exitCode?: number | undefined;
}

export interface ToolEntry extends Base {
  readonly kind: 'tool';
  readonly callId: string;
  readonly actionId?: string | undefined;
  readonly name: string;
  /** Who runs it; null: not said yet. */
  readonly runner: 'tool' | 'hook' | 'mcp' | 'sandbox' | 'agent' | null;
  readonly input: unknown;
  readonly state: ToolState;
  readonly output?: unknown;
  readonly error?: { readonly code: string; readonly message: string } | undefined;
  readonly exec?: Exec | undefined;
  /** With `runner: 'agent'`: the delegation whose work has this name. */
  readonly delegationId?: string | undefined;
  readonly endedAt?: string | undefined;
}

export interface AskEntry extends Base {
  readonly kind: 'ask';
  readonly interactionId: string;
  readonly what: 'approval' | 'question' | 'uncertain';
  /** Absent for an uncertain effect. */
  readonly interaction?: AskedInteraction | undefined;
  readonly state: 'open' | 'approved' | 'denied' | 'answered' | 'closed';
  readonly answer?: unknown;
  readonly reason?: string | undefined;
}

export interface FileEntry extends Base {
  readonly kind: 'file';
  readonly artifactId: string;
  readonly name: string;
  readonly isDeleted: boolean;
  readonly isFolder: boolean;
  readonly version: number | null;
  readonly size: number | null;
}

/** Something that happened around the conversation. */
export interface NoteEntry extends Base {
  readonly kind: 'note';
  readonly tone: 'quiet' | 'warn' | 'bad';
  readonly text: string;
  readonly detail?: string | undefined;
}

export interface EndEntry extends Base {
  readonly kind: 'end';
  readonly outcome: 'completed' | 'failed' | 'cancelled';
  readonly text: string | null;
  /** A value in the shape of the agent's outputSchema. */
  readonly output?: unknown;
  readonly usage?: Usage | undefined;
  /** From the message on; null: its message is not among the records. */
  readonly durationMs: number | null;
}

export type Entry = UserEntry | AssistantEntry | ToolEntry | AskEntry | FileEntry | NoteEntry | EndEntry;

export type RecordOf<T extends EventRecord['type']> = Extract<EventRecord, { readonly type: T }>;

/** The agent whose work a record is; undefined: the session's own. */
export function agentOf(record: EventRecord): AgentRef | undefined {
  return 'agent' in record.payload ? record.payload.agent : undefined;
}

/** The newest record of some types; '' for none: what is read again when there is another one. */
export function lastOf(records: readonly EventRecord[], types: readonly EventRecord['type'][]): string {
  return records.findLast(({ type }) => types.includes(type))?.eventId ?? '';
}
