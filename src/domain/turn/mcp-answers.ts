import type { Interaction } from '../action/state.ts';
import { z } from 'zod';
import { valueProblem } from '../kernel/json-schema.ts';
import type { Resolution } from './answers.ts';
import type { TurnContext } from './context.ts';
import type { OpenMcpCall } from './mcp-calls.ts';
import type { Running } from './running.ts';
import { completeMcpCall, repeatMcpCall } from './steps/mcp-tools.ts';
import { resumeMcpCalls } from './steps/mcp-settling.ts';

/* What people answer to MCP servers. */

/** An answer to a server's question. */
export type McpAnswer =
  | { readonly action: 'accept'; readonly content?: Readonly<Record<string, unknown>> }
  | { readonly action: 'decline' | 'cancel' };

const answer = z.discriminatedUnion('action', [
  z.strictObject({ action: z.literal('accept'), content: z.record(z.string(), z.unknown()).optional() }),
  z.strictObject({ action: z.literal('decline') }),
  z.strictObject({ action: z.literal('cancel') }),
]);
const content = z.record(z.string(), z.unknown());

/** What a person's value says: any that is not an answer itself is the content of an accepted one. */
export function mcpAnswerOf(value: unknown): McpAnswer | null {
  const parsed = answer.safeParse(value);
  if (parsed.success) {
    const { data } = parsed;
    if (data.action !== 'accept') return { action: data.action };
    return data.content === undefined ? { action: 'accept' } : { action: 'accept', content: data.content };
  }
  const bare = content.safeParse(value);
  return bare.success ? { action: 'accept', content: bare.data } : null;
}

/** Why a value cannot be sent to the server that asked; null: it can. */
export function mcpAnswerProblem(interaction: Interaction, value: unknown): string | null {
  // A sign-in is not answered by what is said about it.
  if (interaction.actionId === undefined || interaction.schema === undefined) return null;
  const given = mcpAnswerOf(value);
  if (given === null) return 'the value is neither an object nor { "action": "accept" | "decline" | "cancel" }';
  return given.action === 'accept' ? valueProblem(interaction.schema, given.content ?? {}) : null;
}

/** The call that waits for the answer, at its thread; null: none does. */
export function callAsking(at: Running, interactionId: string): { at: Running; call: OpenMcpCall } | null {
  for (const thread of at.threads()) {
    const call = thread.thread.mcp.calls.find((one) => one.interactionId === interactionId);
    if (call !== undefined) return { at: thread, call };
  }
  return null;
}

/** The call of which it is not known whether it happened, at its thread; null: there is none of that id. */
export function callInDoubt(at: Running, effectId: string): { at: Running; call: OpenMcpCall } | null {
  for (const thread of at.threads()) {
    const call = thread.thread.mcp.calls.find((one) => one.status === 'uncertain' && one.effectId === effectId);
    if (call !== undefined) return { at: thread, call };
  }
  return null;
}

/** A person says what became of a call. */
export function applyMcpResolution(
  { at, call }: { readonly at: Running; readonly call: OpenMcpCall },
  value: Resolution,
): void {
  switch (value.resolution) {
    case 'retry':
      repeatMcpCall(at, call.callId);
      return;
    case 'result':
      completeMcpCall(at, call, { outcome: { kind: 'completed', output: value.result ?? null } });
      return;
    case 'fail': {
      const message = 'It is not known whether this call ran. It counts as failed.';
      completeMcpCall(at, call, { outcome: { kind: 'failed', code: 'effect_lost', message } });
    }
  }
}

/** Ends the questions that completed sign-ins answer, and makes the calls again that waited for them. */
export function endSignIns(at: Running, { signedIn }: Pick<TurnContext, 'signedIn'>): void {
  const { turnId } = at;
  const answered = Object.keys(at.turn.work.interactions).filter((interactionId) => signedIn?.has(interactionId));
  const held = answered.flatMap((interactionId) => callAsking(at, interactionId)?.call.callId ?? []);
  for (const interactionId of answered) at.add({ type: 'interaction.withdrawn', data: { turnId, interactionId } });
  resumeMcpCalls(at, held);
}
