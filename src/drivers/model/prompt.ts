import { createHash } from 'node:crypto';
import type { JSONObject, JSONValue, LanguageModelV4Message, LanguageModelV4ToolResultPart } from '@ai-sdk/provider';
import type { ConversationMessage } from '../../domain/turn/conversation.ts';
import type { Attachments } from './attachments.ts';
import type { RemoteProvider } from './port.ts';
import { isOf, thoughtful } from './thinking.ts';

type Assistant = Extract<ConversationMessage, { role: 'assistant' }>;
type ToolResult = Extract<ConversationMessage, { role: 'tool' }>;
type Output = LanguageModelV4ToolResultPart['output'];
type Files = NonNullable<ReturnType<Attachments['get']>>;
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
    const from = i;
    while (messages[i]?.role === 'tool') i += 1;
    addAssistant(prompt, stepOf(message, { messages, from, to: i }, { asked, attachments }));
  }
  return prompt;
}

function addUser(prompt: LanguageModelV4Message[], said: string, files: Files): void {
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
const NO_FILES: Attachments = new Map();

interface Wanted {
  readonly message: Assistant;
  readonly results: readonly ToolResult[];
  readonly asked: Asked;
}

/** Where the results of a message are. */
interface Stretch {
  readonly messages: readonly ConversationMessage[];
  readonly from: number;
  readonly to: number;
}

function stepOf(
  message: Assistant,
  stretch: Stretch,
  { asked, attachments }: { readonly asked: Asked; readonly attachments: Attachments },
): Step {
  const hasFiles = (one: ToolResult): boolean => attachments.has(one);
  const known = knownStep(message, stretch, asked);
  if (known !== undefined && !known.results.some(hasFiles)) return known;
  const results = stretch.messages.slice(stretch.from, stretch.to).filter((one) => one.role === 'tool');
  // What is sent of files depends on those that came later.
  if (results.some(hasFiles)) return makeStep({ message, results, asked }, attachments);
  const made = makeStep({ message, results, asked }, NO_FILES);
  steps.set(message, made);
  return made;
}

function knownStep(message: Assistant, { messages, from, to }: Stretch, asked: Asked): Step | undefined {
  const known = steps.get(message);
  if (known?.asked.provider !== asked.provider || known.asked.model !== asked.model) return undefined;
  const isSame = known.results.length === to - from && known.results.every((one, at) => one === messages[from + at]);
  return isSame ? known : undefined;
}

function makeStep({ message, results, asked }: Wanted, attachments: Attachments): Step {
  const { text, toolCalls, thinking } = message;
  const said = text.trim() === '' ? [] : [{ type: 'text' as const, text }];
  const calls = toolCalls.map(({ callId, name, input }) => ({
    type: 'tool-call' as const,
    toolCallId: wireId(callId),
    toolName: wireName(name),
    input: wireInput(input),
  }));
  const byId = new Map(results.toReversed().map((one) => [one.callId, one]));
  const answers = toolCalls.map(({ callId, name }) => {
    const result = byId.get(callId);
    const part = { type: 'tool-result' as const, toolCallId: wireId(callId), toolName: wireName(name) };
    return { ...part, output: outputOf(result, (result && attachments.get(result)) ?? []) };
  });
  const isThought = isOf(thinking, asked.provider, asked.model);
  const content = isThought ? thoughtful(thinking, text, calls) : [...said, ...calls];
  return { asked, results, content, answers };
}

function outputOf(result: ToolResult | undefined, files: Files): Output {
  if (result === undefined) return { type: 'error-text', value: UNFINISHED };
  const { failed, output } = result;
  if (files.length > 0 && !failed) return withFiles(output, files);
  if (typeof output === 'string') return { type: failed ? 'error-text' : 'text', value: output };
  return { type: failed ? 'error-json' : 'json', value: jsonValue(output) };
}

/** One text first, whatever there is of it: a provider may take each further one for a result of its own. */
function withFiles(output: unknown, files: Files): Output {
  const said = typeof output === 'string' ? output : JSON.stringify(output ?? null);
  const words = files.flatMap((part) => (part.type === 'text' ? [part.text] : []));
  const value = [said, ...words].filter((one) => one.trim() !== '').join('\n\n');
  const shown = files.filter((part) => part.type === 'file');
  if (shown.length === 0) return { type: 'text', value };
  return { type: 'content', value: [{ type: 'text', text: value === '' ? NO_TEXT : value }, ...shown] };
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
