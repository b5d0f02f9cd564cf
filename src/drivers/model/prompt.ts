import { createHash } from 'node:crypto';
import type { JSONObject, JSONValue, LanguageModelV4Message, LanguageModelV4ToolResultPart } from '@ai-sdk/provider';
import type { ConversationMessage } from '../../domain/turn/conversation.ts';
import type { Attachments } from './attachments.ts';
import type { RemoteProvider } from './port.ts';
import { isOf, thoughtful } from './thinking.ts';

type Assistant = Extract<ConversationMessage, { role: 'assistant' }>;
type ToolResult = Extract<ConversationMessage, { role: 'tool' }>;
type AssistantContent = Extract<LanguageModelV4Message, { role: 'assistant' }>['content'];

/** Who is asked: thoughts of others are not sent. */
interface Asked {
  readonly provider: RemoteProvider;
  readonly model: string;
}

/** Some providers refuse a text without any visible character. */
const NO_TEXT = '(no text)';
/** For a call whose turn ended before its result arrived: providers refuse a call without one. */
const UNFINISHED = 'The call was not finished: its turn was ended before.';

/**
 * The conversation in the form that every provider accepts: roles alternate, an assistant's message is never empty, and
 * its tool calls are followed by exactly their results.
 */
export function toPrompt(
  instructions: string,
  messages: readonly ConversationMessage[],
  attachments: Attachments,
  asked: Asked,
): LanguageModelV4Message[] {
  const prompt: LanguageModelV4Message[] = [];
  if (instructions.trim() !== '') prompt.push({ role: 'system', content: instructions });
  for (let i = 0; i < messages.length;) {
    const message = messages[i];
    i += 1;
    if (message?.role === 'user') addUser(prompt, message.text, attachments.get(message) ?? []);
    if (message?.role !== 'assistant') continue;
    const results: ToolResult[] = [];
    for (let next = messages[i]; next?.role === 'tool'; next = messages[i]) {
      results.push(next);
      i += 1;
    }
    addAssistant(prompt, stepOf(message, results, asked));
  }
  return prompt;
}

function addUser(
  prompt: LanguageModelV4Message[],
  said: string,
  files: NonNullable<ReturnType<Attachments['get']>>,
): void {
  const text = said.trim() === '' ? (files.length === 0 ? [NO_TEXT] : []) : [said];
  const parts = [...text.map((one) => ({ type: 'text' as const, text: one })), ...files];
  const last = prompt.at(-1);
  if (last?.role === 'user') last.content.push(...parts);
  else prompt.push({ role: 'user', content: parts });
}

function addAssistant(prompt: LanguageModelV4Message[], { content, answers }: Step): void {
  if (content.length === 0) return;
  const last = prompt.at(-1);
  // Stored messages are never changed, so two consecutive ones are merged into a third.
  if (last?.role === 'assistant') prompt[prompt.length - 1] = { ...last, content: [...last.content, ...content] };
  else prompt.push({ role: 'assistant', content });
  if (answers.length > 0) prompt.push({ role: 'tool', content: answers });
}

/** A message of the model with the results of its calls, as providers accept them. */
interface Step {
  readonly asked: Asked;
  readonly results: readonly ToolResult[];
  readonly content: AssistantContent;
  readonly answers: LanguageModelV4ToolResultPart[];
}

/**
 * By identity: messages never change, and all but the newest are sent again with every step, so rebuilding them would
 * cost more the longer a conversation is.
 */
const steps = new WeakMap<Assistant, Step>();

function stepOf(message: Assistant, results: readonly ToolResult[], asked: Asked): Step {
  const known = steps.get(message);
  const isSame = known?.asked.provider === asked.provider && known.asked.model === asked.model;
  if (isSame && known.results.length === results.length && known.results.every((one, i) => one === results[i]))
    return known;
  const made = makeStep(message, results, asked);
  steps.set(message, made);
  return made;
}

function makeStep({ text, toolCalls, thinking }: Assistant, results: readonly ToolResult[], asked: Asked): Step {
  const said = text.trim() === '' ? [] : [{ type: 'text' as const, text }];
  const calls = toolCalls.map(({ callId, name, input }) => ({
    type: 'tool-call' as const,
    toolCallId: wireId(callId),
    toolName: wireName(name),
    input: wireInput(input),
  }));
  const byId = new Map(results.toReversed().map((one) => [one.callId, one]));
  const answers = toolCalls.map(({ callId, name }) => resultPart(callId, name, byId.get(callId)));
  const isThought = isOf(thinking, asked.provider, asked.model);
  const content = isThought ? thoughtful(thinking, text, calls) : [...said, ...calls];
  return { asked, results, content, answers };
}

function resultPart(callId: string, name: string, result: ToolResult | undefined): LanguageModelV4ToolResultPart {
  const part = { type: 'tool-result' as const, toolCallId: wireId(callId), toolName: wireName(name) };
  if (result === undefined) return { ...part, output: { type: 'error-text', value: UNFINISHED } };
  const { failed, output } = result;
  if (typeof output === 'string') return { ...part, output: { type: failed ? 'error-text' : 'text', value: output } };
  return { ...part, output: { type: failed ? 'error-json' : 'json', value: jsonValue(output) } };
}

function jsonValue(value: unknown): JSONValue {
  // What a tool returned has been through the log, so it is JSON; an absent member is null there.
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion
  return (value ?? null) as JSONValue;
}

/** Providers disagree about ids; nine letters and digits are what the strictest accepts. The same id every time. */
export function wireId(callId: string): string {
  const digest = createHash('sha256').update(callId).digest('hex').slice(0, 15);
  return Number.parseInt(digest, 16).toString(36).padStart(9, '0').slice(-9);
}

/** A model may have called a tool by a name that no provider accepts back. */
function wireName(name: string): string {
  const safe = name.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, 64);
  return safe === '' ? 'unnamed' : safe;
}

/** Providers require an object as input; text that was not valid JSON is shown to the model as it was. */
function wireInput(input: unknown): JSONObject {
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- it has been through the log, so it is JSON
  if (typeof input === 'object' && input !== null && !Array.isArray(input)) return input as JSONObject;
  return { invalidInput: jsonValue(input) };
}
