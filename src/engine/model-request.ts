import { hash } from 'node:crypto';
import type { OpenSession } from '../domain/session/state.ts';
import type { ModelSettings } from '../domain/agent/manifest.ts';
import { manifestOf, modelOf } from '../domain/turn/agents.ts';
import { summaryTask } from '../domain/turn/compaction.ts';
import { tokensOf } from '../domain/turn/conversation.ts';
import type { Conversation, FileRef } from '../domain/turn/conversation.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import { cutOfThread } from '../domain/turn/steps/shrinking.ts';
import { declaredTools } from '../domain/turn/steps/tools.ts';
import type { PendingCall, Thread } from '../domain/turn/thread.ts';
import type { ModelDrivers, ModelFile, ModelRequest } from '../drivers/model/port.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { InheritedConversations } from './inherited-conversations.ts';

/* What a model is asked: derived from the fold, stored nowhere. */

/**
 * Room that is kept for an answer without a limit of its own, tokens; never more than a fraction of the model's
 * context.
 */
const OUTPUT_TOKENS = 8_192;
const OUTPUT_PART = 0.25;
/** How much of a conversation a model is shown when it has to summarise it, as a fraction of its context. */
const SUMMARISED_PART = 0.5;

export interface ModelRequestDeps {
  readonly models: ModelDrivers;
  /** What a file of a message is; null: it has been deleted. */
  readonly files: (tenant: string, file: FileRef) => Promise<ModelFile | null>;
  readonly conversations: InheritedConversations;
}

/** A call that is about to be made, and the fold that requires it. */
export interface WantedCall {
  readonly ref: AggregateRef;
  readonly session: OpenSession;
  readonly turn: ActiveTurn;
  readonly thread: Thread;
  /** Of the newest commit in that fold: whatever becomes of the call is recorded after it. */
  readonly position: number;
  readonly pending: PendingCall;
}

/** Whether the conversation of a step is longer than its model is known to accept, with room for an answer. */
export async function isTooLong(deps: ModelRequestDeps, wanted: WantedCall): Promise<boolean> {
  const { session, turn, thread, pending } = wanted;
  const window = windowOf(deps, wanted);
  if (window === null || pending.purpose === 'summary') return false;
  const conversation = await conversationOf(deps, wanted);
  const manifest = manifestOf(session, turn, thread);
  const { maxOutputTokens = OUTPUT_TOKENS } = modelOf(session, turn, thread)?.settings ?? {};
  const tokensMax = window - Math.min(maxOutputTokens, Math.floor(window * OUTPUT_PART));
  return tokensOf(conversation, manifest.instructions.length) > tokensMax;
}

export async function modelRequest(deps: ModelRequestDeps, wanted: WantedCall): Promise<ModelRequest> {
  const { ref, session, turn, thread, pending } = wanted;
  const manifest = manifestOf(session, turn, thread);
  const { stepInstructions, answered } = thread;
  const conversation = await conversationOf(deps, wanted);
  const settings = modelOf(session, turn, thread)?.settings ?? {};
  const request = {
    callId: pending.callId,
    tenant: ref.tenant,
    conversationId: hash('sha256', `${ref.tenant}\0${ref.id}\0${thread.agent?.delegationId ?? ''}`).slice(0, 32),
    model: pending.model,
    settings,
    instructions: stepInstructions === null ? manifest.instructions : `${manifest.instructions}\n\n${stepInstructions}`,
    messages: conversation.messages,
    file: async (file: FileRef) => await deps.files(ref.tenant, file),
    tools: declaredTools(manifest, thread),
    toolChoice: choiceOf(settings, thread),
    outputSchema: manifest.outputSchema ?? null,
    answered,
  };
  const cut = pending.purpose === 'summary' ? cutOfThread(session, thread) : null;
  if (cut === null) return request;
  const window = windowOf(deps, wanted);
  const charsPerToken = conversation.chars / Math.max(1, tokensOf(conversation));
  const charsMax = window === null ? null : Math.floor(window * SUMMARISED_PART * charsPerToken);
  return { ...request, ...summaryRequest(summaryTask(conversation, cut, charsMax)) };
}

async function conversationOf(
  { conversations }: ModelRequestDeps,
  { ref, session, thread }: WantedCall,
): Promise<Conversation> {
  return thread.conversation ?? (await conversations.of(ref, session));
}

/** Tokens that the model of a call accepts; null: not known. */
function windowOf({ models }: ModelRequestDeps, { ref, pending }: WantedCall): number | null {
  return models.get(pending.provider)?.contextWindow?.(pending.model, ref.tenant) ?? null;
}

/** A model that had to call a tool at each step would never answer. A turn that continues a failed one has had its first. */
function choiceOf({ toolChoice = 'auto' }: ModelSettings, { step, calledTools }: Thread): ModelRequest['toolChoice'] {
  return step === 0 && !calledTools ? toolChoice : 'auto';
}

type Summary = Pick<ModelRequest, 'instructions' | 'messages' | 'tools' | 'toolChoice' | 'outputSchema'>;

/** A summary is asked for in plain words: no tools, no schema, no system prompt of the agent. */
function summaryRequest(text: string): Summary {
  const messages = [{ role: 'user' as const, text }];
  return { instructions: '', messages, tools: [], toolChoice: 'auto', outputSchema: null };
}
