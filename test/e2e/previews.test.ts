import { expect, test } from 'vitest';
import { z } from 'zod';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { SseReader } from '../support/sse.ts';
import { until } from '../support/wait-until.ts';

const preview = z.strictObject({
  turnId: z.string(),
  modelCallId: z.string(),
  offset: z.int(),
  text: z.string().optional(),
  reasoning: z.string().optional(),
  toolCall: z.strictObject({ index: z.int(), name: z.string(), input: z.string() }).optional(),
});

function previewsOf({ frames }: SseReader): readonly z.infer<typeof preview>[] {
  return frames.flatMap(({ event, data }) => (event === 'preview' ? [preview.parse(JSON.parse(data))] : []));
}

function has({ frames }: SseReader, type: string): boolean {
  return frames.some(({ event }) => event === type);
}

const TEXT = Array.from({ length: 60 }, (_, at) => `word${at}`).join(' ');
const INPUT = { query: 'some words that are written one after the other' };

test('an answer shows on another node while it is written, to those that ask, and is the same in the end', async () => {
  await using engine = await startHost({ env: { AGENT_HOST_ROLES: 'engine,projector,commands,reads' } });
  await using reader = await startHost({ join: engine, env: { AGENT_HOST_ROLES: 'reads,commands' } });
  const tenant = await new AdminClient(engine).createTenant();
  await tenant.saveAgent();
  await tenant.openSession('written');
  const asking = await tenant.at(reader).events('written', { previews: true });
  const silent = await tenant.at(reader).events('written');
  await until('both read', () => has(asking, 'ready') && has(silent, 'ready'), 60_000);
  const { turnId } = await tenant.play('written', [
    { text: TEXT, toolCalls: [{ name: 'none', input: INPUT }], tokensPerSecond: 6 },
    { text: 'done' },
  ]);
  await until('a part is shown', () => previewsOf(asking).length > 2, 60_000);
  expect(has(asking, 'message.assistant'), 'before the answer is complete').toBe(false);
  const late = await tenant.at(reader).events('written', { previews: true });
  await until('the turn has ended', () => has(asking, 'turn.completed') && has(silent, 'turn.completed'), 60_000);

  const said = asking.frames.find(({ event }) => event === 'message.assistant');
  const { payload } = z
    .object({ payload: z.object({ modelCallId: z.string(), text: z.string() }) })
    .parse(JSON.parse(said?.data ?? 'null'));
  const own = previewsOf(asking).filter(({ modelCallId }) => modelCallId === payload.modelCallId);
  expect(own.every((one) => one.turnId === turnId)).toBe(true);
  for (const { offset, text = '' } of own.filter(({ toolCall }) => toolCall === undefined)) {
    expect(payload.text.slice(offset, offset + text.length)).toBe(text);
  }
  const json = JSON.stringify(INPUT);
  for (const { offset, toolCall } of own.filter((one) => one.toolCall !== undefined)) {
    expect(toolCall?.name).toBe('none');
    expect(json.slice(offset, offset + (toolCall?.input.length ?? 0))).toBe(toolCall?.input);
  }
  expect(asking.frames.filter(({ event }) => event === 'preview').every(({ id }) => id === null)).toBe(true);
  expect(has(silent, 'preview'), 'a reader that did not ask').toBe(false);
  await until('the late one has the end, too', () => has(late, 'turn.completed'), 60_000);
  const begins = previewsOf(late).find(({ text }) => text !== undefined);
  // It says what it has missed; on a slow machine it may come after the text.
  expect(begins?.offset ?? 1).toBeGreaterThan(0);
  const ids = ({ frames }: SseReader) => frames.flatMap(({ id }) => (id === null ? [] : [id]));
  expect(ids(late)).toEqual(ids(asking));
  expect(ids(silent)).toEqual(ids(asking));
  for (const stream of [asking, silent, late]) stream.close();
});

test('a cancelled turn stops showing', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent();
  await tenant.openSession('written');
  const asking = await tenant.events('written', { previews: true });
  await until('it reads', () => has(asking, 'ready'), 60_000);
  await tenant.play('written', [{ text: TEXT.repeat(20), tokensPerSecond: 20 }]);
  await until('a part is shown', () => previewsOf(asking).length > 2, 60_000);
  await tenant.cancel('written');
  await until('it is cancelled', () => has(asking, 'turn.cancelled'), 60_000);
  const { length } = previewsOf(asking);
  await tenant.play('written', [{ text: 'next' }]);
  await until('the next turn has ended', () => has(asking, 'turn.completed'), 60_000);
  expect(previewsOf(asking).length - length, 'what was under way at most').toBeLessThanOrEqual(1);
  const spent = await until('what was written of it is in the ledger', async () => {
    const [call] = (await tenant.calls('written')).calls;
    return call !== undefined && call.usage.outputTokens > 0 && call;
  });
  expect(spent).toMatchObject({ outcome: 'cancelled', usage: { tokensReported: false, costKnown: true } });
  expect(spent.latencyMs).toBeGreaterThanOrEqual(spent.firstTokenMs ?? Number.POSITIVE_INFINITY);
  asking.close();
});
