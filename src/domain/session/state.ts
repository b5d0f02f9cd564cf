import type { Manifest } from '../agent/manifest.ts';
import type { EventMeta } from '../kernel/decision.ts';
import { evolveTurn } from '../turn/state.ts';
import type { ActiveTurn } from '../turn/state.ts';
import { addUsage, ZERO_TOTAL } from '../turn/usage.ts';
import type { Usage } from '../turn/usage.ts';
import { isCanonical } from './canonical.ts';
import { emptyConversation, evolveConversation } from './conversation.ts';
import type { Conversation } from './conversation.ts';
import type { SessionEvent } from './events.ts';
import { emptyReceipts } from './receipts.ts';
import type { ReceiptBook } from './receipts.ts';

export type TurnOutcome = 'completed' | 'failed' | 'cancelled';

export interface LastTurn {
  readonly turnId: string;
  readonly outcome: TurnOutcome;
  readonly endedAt: string;
}

/** What a session is opened with; it keeps the manifest that it was created with. */
export interface SessionOpening {
  readonly agentId: string;
  readonly agentVersion: number;
  readonly manifestHash: string;
  readonly manifest: Manifest;
  readonly subject: string | null;
  readonly info: Readonly<Record<string, unknown>>;
  readonly labels: Readonly<Record<string, string>>;
  /** What a repeated PUT is compared with. */
  readonly bodyHash: string;
}

export interface OpenSession extends SessionOpening {
  readonly status: 'open';
  readonly createdAt: string;
  readonly updatedAt: string;
  /** Position of the commit that opened it: cursors from before belong to an earlier session of the same id. */
  readonly createdPosition: number;
  /** Where the newest event of the canonical history stands; null while it is empty. */
  readonly last: { readonly position: number; readonly index: number } | null;
  readonly turn: ActiveTurn | null;
  readonly lastTurn: LastTurn | null;
  /** Total over all turns, bills of given-up calls included. */
  readonly usage: Usage;
  readonly receipts: ReceiptBook;
  readonly conversation: Conversation;
}

/** absent → open. An open session is idle (no turn) or has exactly one active turn. */
export type SessionState = { readonly status: 'absent' } | OpenSession;

export const initialSession: SessionState = { status: 'absent' };

/** Part of a snapshot's name: raise it whenever the meaning of the folded state changes. */
export const SESSION_FOLD_VERSION = 1;

/** Total: it never throws, and an event that cannot apply changes nothing. */
export function evolveSession(state: SessionState, event: SessionEvent, meta: EventMeta): SessionState {
  if (event.type === 'session.created') {
    return state.status === 'absent' ? openSession(event.data, meta) : state;
  }
  if (state.status === 'absent') return state;
  const conversation = evolveConversation(state.conversation, event);
  const last = isCanonical(event.type) ? { position: meta.position, index: meta.index } : state.last;
  const next = { ...state, conversation, last, updatedAt: meta.at };
  switch (event.type) {
    case 'session.updated':
      return { ...next, labels: event.data.labels };
    case 'command.message':
    case 'command.cancel':
      return next;
    case 'turn.completed':
      return ended(next, event.data.turnId, { outcome: 'completed', at: meta.at });
    case 'turn.failed':
      return ended(next, event.data.turnId, { outcome: 'failed', at: meta.at });
    case 'turn.cancelled':
      return ended(next, event.data.turnId, { outcome: 'cancelled', at: meta.at });
    default:
      return { ...next, turn: evolveTurn(state.turn, event, meta), usage: totalAfter(state.usage, event) };
  }
}

function ended(state: OpenSession, turnId: string, end: { outcome: TurnOutcome; at: string }): OpenSession {
  if (state.turn?.turnId !== turnId) return state;
  return { ...state, turn: null, lastTurn: { turnId, outcome: end.outcome, endedAt: end.at } };
}

/** What the session has used after an event; the read model of the sessions counts by the same rule. */
export function totalAfter(total: Usage, event: SessionEvent): Usage {
  if (event.type === 'model.completed' || event.type === 'model.reported') return addUsage(total, event.data.usage);
  if (event.type === 'model.failed' && event.data.usage.tokensReported) return addUsage(total, event.data.usage);
  return total;
}

function openSession(data: Extract<SessionEvent, { type: 'session.created' }>['data'], meta: EventMeta): OpenSession {
  return {
    status: 'open',
    ...data,
    createdAt: meta.at,
    updatedAt: meta.at,
    createdPosition: meta.position,
    last: null,
    turn: null,
    lastTurn: null,
    usage: ZERO_TOTAL,
    receipts: emptyReceipts,
    conversation: emptyConversation,
  };
}
