import { withoutNulls } from '../../domain/kernel/optional.ts';
import type { ActionEvent, AgentRef } from '../../domain/action/events.ts';
import type { Action } from '../../domain/action/state.ts';
import type { HookPoint } from '../../domain/agent/manifest.ts';
import type { SessionEvent } from '../../domain/session/events.ts';

/** What actions and interactions take over from their session; it does not change while the session exists. */
export interface WorkSession {
  readonly id: string;
  readonly agentId: string;
  readonly subject: string | null;
  readonly info: Readonly<Record<string, unknown>>;
}

/** What an executor is shown of an action. */
export interface ActionView {
  readonly actionId: string;
  readonly sessionId: string;
  readonly turnId: string;
  readonly agentId: string;
  readonly kind: 'tool' | 'hook';
  readonly toolName?: string | undefined;
  readonly hook?: HookPoint | undefined;
  readonly callId: string;
  readonly input?: unknown;
  readonly status: Action['status'] | 'completed' | 'withdrawn';
  readonly generation: number;
  readonly subject?: string;
  readonly info?: Readonly<Record<string, unknown>>;
  readonly createdAt: string;
  readonly agent?: AgentRef | undefined;
  /** The answer to what the executor asked. */
  readonly resume?: { readonly interactionId: string; readonly value?: unknown } | undefined;
}

/** Something that a person has to answer, as the inbox shows it. */
export interface InteractionView {
  readonly interactionId: string;
  readonly kind: 'approval' | 'question';
  readonly sessionId: string;
  readonly turnId: string;
  readonly agentId: string;
  /** Of the session: grants reach it by this. */
  readonly sessionAgent: string;
  readonly subject: string | null;
  readonly prompt?: string | undefined;
  readonly toolName?: string | undefined;
  readonly input?: unknown;
  readonly schema?: Readonly<Record<string, unknown>> | undefined;
  readonly budgetId?: string | undefined;
  readonly server?: string | undefined;
  readonly vaultId?: string | undefined;
  readonly credentialId?: string | undefined;
  readonly url?: string | undefined;
  readonly actionId?: string | undefined;
  readonly agent?: AgentRef | undefined;
  readonly createdAt: string;
  readonly status: 'open' | 'answered' | 'withdrawn';
}

type EventOf<T extends ActionEvent['type']> = Extract<ActionEvent, { type: T }>;

/** The action that an event is about; null: none. */
export function actionIdOf(event: SessionEvent): string | null {
  switch (event.type) {
    case 'action.pending':
    case 'action.claimed':
    case 'action.completed':
    case 'action.uncertain':
    case 'action.withdrawn':
      return event.data.actionId;
    case 'interaction.opened':
      return event.data.actionId ?? null;
    default:
      return null;
  }
}

/** The interaction that an event opens or closes; null: none. */
export function interactionIdOf(event: SessionEvent): string | null {
  switch (event.type) {
    case 'interaction.opened':
    case 'interaction.withdrawn':
    case 'command.approve':
    case 'command.respond':
      return event.data.interactionId;
    default:
      return null;
  }
}

/** Not shared: what becomes of an action is decided on the fold of its session, this is for finding it. */
export function evolveActionView(
  view: ActionView | undefined,
  event: SessionEvent,
  { session, at }: { readonly session: WorkSession; readonly at: string },
): ActionView | undefined {
  if (event.type === 'action.pending') return offered(event.data, session, view?.createdAt ?? at);
  if (view === undefined) return undefined;
  switch (event.type) {
    case 'action.claimed':
      return { ...view, status: 'claimed' };
    case 'action.uncertain':
      return { ...view, status: 'uncertain' };
    case 'interaction.opened':
      return { ...view, status: 'asked' };
    case 'action.completed':
      return over(view, 'completed');
    case 'action.withdrawn':
      return over(view, 'withdrawn');
    default:
      return view;
  }
}

function offered(
  data: EventOf<'action.pending'>['data'],
  { id: sessionId, subject, info }: WorkSession,
  createdAt: string,
): ActionView {
  const whose = withoutNulls({ subject });
  return { ...data, sessionId, status: 'pending', ...whose, info, createdAt };
}

/** Ended ones are kept for lookups by id; their input is no longer read there. */
function over(view: ActionView, status: 'completed' | 'withdrawn'): ActionView {
  const { input: _input, resume: _resume, info: _info, ...rest } = view;
  return { ...rest, status };
}

/** An open action of a fold, as its executor is shown it. */
export function actionView(action: Action, turnId: string, session: WorkSession): ActionView {
  const { actionId, agentId, kind, toolName, hook, callId, input, status, generation, createdAt, agent } = action;
  return {
    ...{ actionId, sessionId: session.id, turnId, agentId, kind },
    ...withoutNulls({ toolName, hook }),
    ...{ callId, input, status, generation },
    ...withoutNulls({ subject: session.subject }),
    ...{ info: session.info, createdAt },
    ...withoutNulls({ agent }),
    ...withoutNulls({ resume: action.resume }),
  };
}

export function evolveInteractionView(
  view: InteractionView | undefined,
  event: SessionEvent,
  { session, at }: { readonly session: WorkSession; readonly at: string },
): InteractionView | undefined {
  switch (event.type) {
    case 'interaction.opened': {
      const { callId: _, mcp: _mcp, ...data } = event.data;
      const { id: sessionId, agentId: sessionAgent, subject } = session;
      return { ...data, sessionId, sessionAgent, subject, createdAt: at, status: 'open' };
    }
    case 'command.approve':
    case 'command.respond':
      return view === undefined ? undefined : closed(view, 'answered');
    case 'interaction.withdrawn':
      return view === undefined ? undefined : closed(view, 'withdrawn');
    default:
      return view;
  }
}

function closed(view: InteractionView, status: 'answered' | 'withdrawn'): InteractionView {
  const { input: _input, schema: _schema, ...rest } = view;
  return { ...rest, status };
}
