import { describe, expect, test } from 'vitest';
import {
  addMessage,
  CONVERSATION_CHARS_MAX,
  CONVERSATION_MESSAGES_MAX,
  emptyConversation,
  evolveConversation,
  joinConversations,
  measured,
} from './conversation.ts';
import type { Conversation } from './conversation.ts';
import { messageFiles, messageText } from '../session/message.ts';
import type { TurnEvent } from './events.ts';

type Said = TurnEvent | { readonly user: string };
const user = (text: string): Said => ({ user: text });
const assistant = (text: string, callIds: string[] = []): TurnEvent => ({
  type: 'message.assistant',
  data: { turnId: 't', step: 0, text, toolCalls: callIds.map((callId) => ({ callId, name: 'n', input: {} })) },
});
const tool = (callId: string, output: unknown = 'ok'): TurnEvent => ({
  type: 'tool.completed',
  data: { turnId: 't', callId, name: 'n', outcome: { kind: 'completed', output } },
});

const fold = (said: readonly Said[], from: Conversation = emptyConversation): Conversation =>
  said.reduce((now, one) => ('user' in one ? addMessage(now, one.user) : evolveConversation(now, one)), from);

/** An answer that was thought about. */
const thoughtful = (text: string, callIds: string[] = []): TurnEvent => {
  const said = assistant(text, callIds);
  const thought = { kind: 'thought' as const, text: 'hm '.repeat(100), seal: { p: { signature: 's' } } };
  const thinking = { provider: 'p', model: 'm', parts: [thought] };
  return said.type === 'message.assistant' ? { ...said, data: { ...said.data, thinking } } : said;
};

describe('what a model thought', () => {
  const said = [user('one'), thoughtful('', ['a']), tool('a'), thoughtful('two'), user('three')];
  const thoughts = ({ messages }: Conversation): number =>
    messages.filter((message) => message.role === 'assistant' && message.thinking !== undefined).length;

  test('stays with its message, counts, and is inherited', () => {
    const whole = fold(said);
    expect(thoughts(whole)).toBe(2);
    expect(whole.chars).toBeGreaterThan(fold([user('one'), assistant('', ['a']), tool('a')]).chars + 600);
    expect(thoughts(joinConversations(whole, fold([user('four')])))).toBe(2);
  });

  test('leaves with it: of a message that is shortened it is not true any more', () => {
    const cut = { turnId: 't', summary: '', head: 5, keep: 0, partChars: 200 };
    const less = fold([{ type: 'conversation.compacted', data: cut }], fold(said));
    expect(thoughts(less)).toBe(0);
    expect(less.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'assistant', 'user']);
    const summary = { turnId: 't', summary: 'Before.', head: 0, keep: 2 };
    expect(thoughts(fold([{ type: 'conversation.compacted', data: summary }], fold(said)))).toBe(1);
  });
});

/** What is left of it in characters, computed again. */
function sizeOf(conversation: Conversation): number {
  return fold(
    conversation.messages.map((message) => {
      if (message.role === 'user') return user(message.text);
      if (message.role === 'tool') return tool(message.callId, message.output);
      return assistant(
        message.text,
        message.toolCalls.map(({ callId }) => callId),
      );
    }),
  ).chars;
}

test('shows messages, answers and tool results in their order, and nothing else', () => {
  const failed: TurnEvent = {
    type: 'tool.completed',
    data: { turnId: 't', callId: 'c2', name: 'n', outcome: { kind: 'failed', code: 'tool_unknown', message: 'No.' } },
  };
  const cancelled: TurnEvent = { type: 'turn.cancelled', data: { turnId: 't' } };
  const events = [user('a'), assistant('b', ['c1', 'c2']), tool('c1', { x: 1 }), failed, cancelled, assistant('c')];
  expect(fold(events).messages).toEqual([
    { role: 'user', text: 'a' },
    {
      role: 'assistant',
      text: 'b',
      toolCalls: [
        { callId: 'c1', name: 'n', input: {} },
        { callId: 'c2', name: 'n', input: {} },
      ],
    },
    { role: 'tool', callId: 'c1', name: 'n', failed: false, output: { x: 1 } },
    {
      role: 'tool',
      callId: 'c2',
      name: 'n',
      failed: true,
      output: { error: { code: 'tool_unknown', message: 'No.' } },
    },
    { role: 'assistant', text: 'c', toolCalls: [] },
  ]);
});

test('calls that a turn left open are answered before the next message, for no provider takes them otherwise', () => {
  const left = fold([user('a'), assistant('b', ['c1', 'c2']), tool('c1'), user('d')]);
  expect(left.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'tool', 'user']);
  expect(left.messages[3]).toEqual({
    role: 'tool',
    callId: 'c2',
    name: 'n',
    failed: true,
    output: { error: { code: 'cancelled', message: 'The turn ended before this call was answered.' } },
  });
  const next = fold([assistant('e'), user('f')], left);
  expect(next.messages.map(({ role }) => role)).toEqual([
    'user',
    'assistant',
    'tool',
    'tool',
    'user',
    'assistant',
    'user',
  ]);
});

test('also where the calls are many messages back', () => {
  const ids = Array.from({ length: 300 }, (_, n) => `c${n}`);
  const answered = ids.slice(0, 200);
  const left = fold([user('a'), assistant('b', ids), ...answered.map((id) => tool(id)), user('d')]);
  const answers = left.messages.slice(2, -1);
  expect(answers.map((message) => (message.role === 'tool' ? [message.callId, message.failed] : null))).toEqual(
    ids.map((id, n) => [id, n >= answered.length]),
  );
});

test('the text of a message: its content, or its parts', () => {
  expect(messageText({ content: 'a' })).toBe('a');
  const file = { type: 'file', artifactId: 'af_1', version: 2 } as const;
  expect(messageText({ parts: [{ type: 'text', text: 'a' }, file, { type: 'text', text: 'b' }] })).toBe('a\nb');
  expect(messageText({ parts: [file] })).toBe('');
  expect(messageText({})).toBe('');
  expect(messageFiles({ parts: [file, { type: 'text', text: 'b' }] })).toEqual([{ artifactId: 'af_1', version: 2 }]);
  expect([messageFiles({}), messageFiles({ parts: [{ type: 'text', text: 'b' }] })]).toEqual([undefined, undefined]);
});

test('the files of a message stay with it, and count for what is kept', () => {
  const files = [{ artifactId: 'af_1', version: 2 }];
  const [plain, attached] = [addMessage(emptyConversation, 'see'), addMessage(emptyConversation, 'see', files)];
  expect(attached.messages).toEqual([{ role: 'user', text: 'see', files }]);
  expect(attached.chars).toBeGreaterThan(plain.chars);
});

describe('bounds', () => {
  test('never more messages than the bound, whole turns only, the newest always there', () => {
    let conversation = emptyConversation;
    for (let n = 0; n < 3 * CONVERSATION_MESSAGES_MAX; n++) {
      conversation = fold([user(`q${n}`), assistant(`a${n}`, ['c']), tool('c'), assistant(`b${n}`)], conversation);
      expect(conversation.messages.length).toBeLessThanOrEqual(CONVERSATION_MESSAGES_MAX);
      expect(conversation.messages[0]?.role).toBe('user');
      expect(conversation.messages.at(-4)).toEqual({ role: 'user', text: `q${n}` });
    }
    expect(conversation.messages.length).toBeGreaterThan(CONVERSATION_MESSAGES_MAX / 2);
    expect(conversation.chars).toBe(sizeOf(conversation));
  });

  test('never more characters than the bound, as long as one turn fits', () => {
    let conversation = emptyConversation;
    for (let n = 0; n < 40; n++) {
      conversation = fold([user('x'.repeat(40_000)), assistant('y'.repeat(40_000))], conversation);
      expect(conversation.chars).toBeLessThanOrEqual(CONVERSATION_CHARS_MAX);
      expect(conversation.messages[0]?.role).toBe('user');
    }
    expect(conversation.chars).toBeGreaterThan(CONVERSATION_CHARS_MAX / 2);
    expect(conversation.chars).toBe(sizeOf(conversation));
  });

  test("the Host's own words begin no turn: what they are about stays", () => {
    const big = 'x'.repeat(CONVERSATION_CHARS_MAX);
    const asked: TurnEvent = { type: 'output.rejected', data: { turnId: 't', message: 'Again.' } };
    const conversation = fold([user('old'), assistant('old'), user('new'), assistant(big), asked]);
    expect(conversation.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user']);
    expect(conversation.messages[0]).toEqual({ role: 'user', text: 'new' });
  });

  test('one turn that is larger than the bound is kept whole, the ones before it go', () => {
    const big = 'x'.repeat(CONVERSATION_CHARS_MAX);
    const conversation = fold([user('old'), assistant('old'), user(big), assistant('a', ['c']), tool('c', big)]);
    expect(conversation.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool']);
    const next = fold([assistant('done'), user('new')], conversation);
    expect(next.messages).toEqual([{ role: 'user', text: 'new' }]);
    expect(next.chars).toBe(sizeOf(next));
  });
});

/** As a snapshot keeps it. */
function kept(conversation: Conversation): Conversation {
  return JSON.parse(JSON.stringify(conversation)) as Conversation;
}

test('a snapshot keeps its messages as one list, from which it continues', () => {
  const events = Array.from({ length: 150 }, (_, i) => user(`${i}`));
  const conversation = measured(fold(events), 7);
  const copy = kept(conversation);
  expect(copy).toEqual({ messages: conversation.messages, chars: conversation.chars, measured: conversation.measured });
  expect(copy.messages).toHaveLength(150);
  const next = [assistant('b', ['c1']), tool('c1'), user('d')];
  expect(kept(fold(next, copy))).toEqual(kept(fold(next, conversation)));
});

describe('an inherited conversation', () => {
  test('comes first, with an answer for the calls that were under way', () => {
    const inherited = fold([user('a'), assistant('b', ['c1', 'c2']), tool('c1')]);
    const whole = joinConversations(inherited, fold([user('d')]));
    expect(kept(whole)).toEqual(kept(fold([user('a'), assistant('b', ['c1', 'c2']), tool('c1'), user('d')])));
    expect(whole.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool', 'tool', 'user']);
  });

  test('is bounded with what came after it, oldest turns first', () => {
    const long = 'x'.repeat(CONVERSATION_CHARS_MAX * 0.6);
    const whole = joinConversations(fold([user('old'), assistant(long)]), fold([user('new'), assistant(long)]));
    expect(whole.messages).toEqual(fold([user('new'), assistant(long)]).messages);
    expect(whole.chars).toBe(sizeOf(whole));
  });
});
