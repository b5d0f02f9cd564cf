import { afterAll, afterEach, expect, test } from 'vitest';
import type { Manifest } from '#src/domain/agent/manifest.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { modelClient } from '#src/drivers/model/client.ts';
import type { RemoteProvider } from '#src/drivers/model/port.ts';
import { remoteModel } from '#src/drivers/model/provider.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { TestNodes } from '../support/engine.ts';
import type { TestNode } from '../support/engine.ts';
import { CALLABLE, PATIENT } from '../support/model-calls.ts';
import { ModelServer } from '../support/model-server.ts';
import type { Reply, WireRequest } from '../support/model-server.ts';
import { useServers } from '../support/servers.ts';

/** Conversations that outgrow their model, over HTTP, with providers that have a context of their own. */
const servers = useServers();
const nodes = new TestNodes();
const client = modelClient({ policy: CALLABLE, silenceMs: 60_000 });
let provider: ModelServer;

afterEach(async () => {
  await nodes.end();
  await provider[Symbol.asyncDispose]();
});
afterAll(async () => {
  await client.close();
});

async function started(wire: RemoteProvider): Promise<TestNode> {
  provider = await ModelServer.start(wire, ['k']);
  const key = { kind: 'known', apiKey: 'k' } as const;
  const connections = async () => await Promise.resolve({ baseUrl: provider.baseUrl, key });
  const node = nodes.add(servers.log, {
    model: remoteModel(wire, { client, connections, clock: Date.now, patience: PATIENT }),
  });
  await node.start();
  node.dispatcher.start();
  return node;
}

async function opened(node: TestNode, model: string): Promise<AggregateRef> {
  const ref = newRef();
  const manifest: Partial<Manifest> = { model: { provider: 'fixture', model } };
  await node.openSession(ref, {}, { model: manifest.model });
  return ref;
}

async function turn(node: TestNode, ref: AggregateRef): Promise<SessionEvent> {
  await node.message(ref);
  return await node.turnEnds(ref);
}

const sentBy = ({ body }: WireRequest): string => JSON.stringify(body);
const isSummary = (request: WireRequest): boolean => sentBy(request).includes('Summarise the conversation');
const TOO_LONG: Reply = { error: { status: 400, type: 'context_length_exceeded', message: 'Too long.' } };
const compactions = (events: readonly SessionEvent[]): number =>
  events.filter(({ type }) => type === 'conversation.compacted').length;

/** Says much and calls a tool, so many times a turn; refuses whatever is longer than its context. */
function limitedTo(charsMax: number, { steps, chars }: { steps: number; chars: number }): { refused: () => number } {
  let [refused, done] = [0, 0];
  provider.play(async (request) => {
    await Promise.resolve();
    if (sentBy(request).length > charsMax) {
      refused++;
      return TOO_LONG;
    }
    if (isSummary(request)) return { text: 'They said much.' };
    done = (done + 1) % (steps + 1);
    if (done === 0) return { text: 'Done.' };
    return { text: 'x'.repeat(chars), toolCalls: [{ name: 'none', input: '{}' }] };
  });
  return { refused: () => refused };
}

test('turn after turn overflows, several times each, and every one of them goes on', async () => {
  const node = await started('openai-compatible');
  const ref = await opened(node, 'm');
  const { refused } = limitedTo(30_000, { steps: 10, chars: 6_000 });
  for (let n = 1; n <= 3; n++) {
    expect(await turn(node, ref), `turn ${n}`).toMatchObject({ type: 'turn.completed', data: { output: 'Done.' } });
  }
  const events = await node.events(ref);
  expect(compactions(events)).toBe(refused());
  expect(refused()).toBeGreaterThanOrEqual(6);
  // Not more than one summary is paid for each time that it was too long.
  expect(provider.requests.filter(isSummary).length).toBeLessThanOrEqual(refused());
});

test('a model whose context has become smaller: older turns go, then steps of the running turn, in the same step', async () => {
  const node = await started('openai-compatible');
  const ref = await opened(node, 'm');
  let [charsMax, answered, refused] = [100_000, 0, 0];
  provider.play(async (request) => {
    await Promise.resolve();
    if (isSummary(request)) return { text: 'They said much.' };
    if (sentBy(request).length > charsMax) {
      refused++;
      return TOO_LONG;
    }
    answered++;
    if (answered === 8) charsMax = 15_000;
    const isEnd = answered === 5 || answered === 9;
    return isEnd ? { text: 'Done.' } : { text: 'x'.repeat(6_000), toolCalls: [{ name: 'none', input: '{}' }] };
  });
  for (const n of [1, 2]) expect(await turn(node, ref), `turn ${n}`).toMatchObject({ type: 'turn.completed' });
  expect(refused).toBe(2);
  expect(provider.requests.filter(isSummary)).toHaveLength(2);
});

test('one whose question alone is too long ends with a clear failure, after few tries', async () => {
  const node = await started('openai-compatible');
  const ref = await opened(node, 'm');
  limitedTo(100, { steps: 3, chars: 100 });
  const end = await turn(node, ref);
  expect(end).toMatchObject({ type: 'turn.failed', data: { error: { code: 'model_context_overflow' } } });
  expect(provider.requests.length).toBeLessThanOrEqual(3);
});

test('a model with a known context is not sent what it would refuse', async () => {
  const node = await started('openai');
  // 400,000 tokens, by the catalogue.
  const ref = await opened(node, 'gpt-5-mini');
  const call = { toolCalls: [{ name: 'none', input: '{}' }] };
  provider.next(
    { ...call, text: 'one', tokens: { input: 100_000, output: 10 } },
    { ...call, text: 'two', tokens: { input: 395_000, output: 10 } },
    { text: 'They said one.', tokens: { input: 200_000, output: 10 } },
    { text: 'Done.', tokens: { input: 1_000, output: 10 } },
  );
  expect(await turn(node, ref)).toMatchObject({ type: 'turn.completed', data: { output: 'Done.' } });
  expect(provider.requests.map(isSummary)).toEqual([false, false, true, false]);
  const events = await node.events(ref);
  expect(compactions(events)).toBe(1);
  expect(events.filter(({ type }) => type === 'model.failed')).toEqual([]);
  expect(events.find(({ type }) => type === 'model.withheld')).toMatchObject({ data: { overflow: true } });
});

test('where nothing can be taken away, the provider has the last word on whether it fits', async () => {
  const node = await started('openai');
  const ref = await opened(node, 'gpt-5-mini');
  provider.next(
    { text: 'one', tokens: { input: 500_000, output: 10 } },
    { text: 'They said one.', tokens: { input: 500_000, output: 10 } },
    { text: 'two', tokens: { input: 500_000, output: 10 } },
  );
  await turn(node, ref);
  expect(await turn(node, ref)).toMatchObject({ type: 'turn.completed', data: { output: 'two' } });
  expect(provider.requests.map(isSummary)).toEqual([false, true, false]);
});
