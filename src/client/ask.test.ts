import { expect, test } from 'vitest';
import { createClient } from './client.ts';

const frame = (index: number, type: string, payload: unknown): string =>
  `id: ${index}\nevent: ${type}\ndata: ${JSON.stringify({ cursor: `${index}`, turnId: 'tu_1', type, payload })}\n\n`;

const RECEIPT = { commandId: 'co', turnId: 'tu_1', cursor: '0' };

/** A client whose Host streams these frames, and answers commands (type and interaction) as it is told. */
function clientOf(frames: readonly string[], onCommand: (command: string) => Response) {
  return createClient({
    ...{ url: 'http://one', key: 'k', tenant: 't' },
    fetch: async (_url, { body }) => {
      if (typeof body !== 'string')
        return new Response(frames.join(''), { headers: { 'content-type': 'text/event-stream' } });
      const { type, interactionId } = JSON.parse(body) as { type: string; interactionId?: string };
      return await Promise.resolve(onCommand(`${type} ${interactionId ?? ''}`.trim()));
    },
  });
}

test('a question is put once, although a pause that was on its way when it was answered lists it again', async () => {
  const approval = { interactionId: 'in_1', kind: 'approval', prompt: 'Pay?' };
  const question = { interactionId: 'in_2', kind: 'question', prompt: 'Which seat?' };
  const frames = [
    frame(1, 'turn.paused', { interactions: [approval] }),
    frame(2, 'turn.paused', { interactions: [approval, question] }),
    frame(3, 'turn.completed', { output: 'done' }),
  ];
  const sent: string[] = [];
  const client = clientOf(frames, (command) => {
    sent.push(command);
    return Response.json(RECEIPT);
  });
  const asked: string[] = [];
  const answer = ({ kind }: { kind: string }): unknown => asked.push(kind);
  expect(await client.session('s').ask('Book', { answer })).toBe('done');
  expect(asked).toEqual(['approval', 'question']);
  expect(sent).toEqual(['message', 'approve in_1', 'respond in_2']);
});

test('an answer that comes after another one, or after the sign-in that was asked for, changes nothing', async () => {
  const signIn = { interactionId: 'in_1', kind: 'question', prompt: 'Sign in.', credentialId: 'cr_1' };
  const frames = [frame(1, 'turn.paused', { interactions: [signIn] }), frame(2, 'turn.completed', { output: 'done' })];
  const late = { status: 'rejected', code: 'session_not_waiting', message: 'The session is not waiting for this.' };
  const client = clientOf(frames, (command) =>
    command === 'message' ? Response.json(RECEIPT) : Response.json(late, { status: 409 }),
  );
  expect(await client.session('s').ask('Book', { answer: () => 'done' })).toBe('done');
});
