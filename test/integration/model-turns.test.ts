import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { ModelServer } from '../support/model-server.ts';
import { Scrape } from '../support/scrape.ts';
import { until } from '../support/wait-until.ts';

const KEY = 'sk-the-right-key-0123456789';

describe('turns of real providers, two nodes', () => {
  let hosts: Host[] = [];
  let server: ModelServer;
  let tenant: TenantClient;
  let sessions = 0;

  beforeAll(async () => {
    server = await ModelServer.start('openai-compatible', [KEY]);
    const first = await startHost();
    hosts = [first];
    hosts.push(await startHost({ join: first }));
    tenant = await newTenant();
    await save({
      provider: 'openai-compatible',
      model: 'llama-4',
      baseUrl: server.baseUrl,
      credential: { apiKey: KEY },
    });
  });

  afterAll(async () => {
    for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  /** With an agent that names no model. */
  async function newTenant(): Promise<TenantClient> {
    const [host] = hosts;
    if (host === undefined) throw new Error('no Host runs');
    const made = await new AdminClient(host).createTenant();
    await made.saveAgent('agent', { model: undefined });
    return made;
  }

  async function save(body: object, of = tenant): Promise<void> {
    const answer = await of.request({ method: 'PUT', path: '/v1/tenant/model', body });
    expect(answer.status, answer.text).toBe(200);
  }

  /** The record that ends a turn of a new session, or of the one that is named. */
  async function turn(text: string, { of = tenant, id = `s${++sessions}` } = {}): Promise<EventRecord> {
    await of.openSession(id);
    const { turnId } = await of.message(id, text);
    return await of.turnEnd(id, turnId);
  }

  test('the share of tokens that came from a provider’s cache is a metric, and the ledger has the same', async () => {
    await using claude = await ModelServer.start('anthropic', [KEY]);
    const of = await newTenant();
    const credential = { apiKey: KEY };
    await save({ provider: 'anthropic', model: 'claude-sonnet-4-5', baseUrl: claude.baseUrl, credential }, of);
    const kinds = ['input', 'cached', 'cache_write', 'output'] as const;
    const counted = async (): Promise<number[]> => {
      const scrapes = await Promise.all(hosts.map(async (host) => await Scrape.of(host)));
      const labels = (kind: string) => ({ provider: 'anthropic', kind });
      return kinds.map((kind) =>
        scrapes.reduce((sum, seen) => sum + seen.value('model_tokens_total', labels(kind)), 0),
      );
    };
    const before = await counted();
    // What a cache was written with at the first call is read from it at the second.
    claude.next({ text: 'One.', tokens: { input: 1_000, output: 7, cacheWrite: 900 } });
    claude.next({ text: 'Two.', tokens: { input: 1_100, output: 8, cached: 900, cacheWrite: 150 } });
    await turn('first', { of, id: 'cached' });
    await turn('second', { of, id: 'cached' });
    const more = (await counted()).map((value, at) => value - (before[at] ?? 0));
    expect(more).toEqual([2_100, 900, 1_050, 15]);
    const { calls } = await of.calls('cached');
    expect(calls.map(({ usage }) => `${usage.cachedTokens}/${usage.inputTokens}`)).toEqual(['0/1000', '900/1100']);
  });

  test('the selection of the tenant answers, with usage in the ledger', async () => {
    server.next({ text: 'Hello!', tokens: { input: 100, output: 20, cached: 40, reasoning: 5 } });
    const tokens = { inputTokens: 100, outputTokens: 20, totalTokens: 120, cachedTokens: 40, reasoningTokens: 5 };
    const end = await turn('Hi', { id: 'ledger' });
    expect(end).toMatchObject({ type: 'turn.completed', payload: { output: 'Hello!', usage: tokens } });
    const { calls } = await tenant.calls('ledger');
    expect(calls).toMatchObject([
      {
        provider: 'openai-compatible',
        model: 'llama-4',
        outcome: 'completed',
        usage: { ...tokens, tokensReported: true, costUsd: 0, costKnown: false },
      },
    ]);
    server.next({ text: 'Again.' });
    await turn('And again', { id: 'ledger' });
    expect(JSON.stringify(server.newest.body)).toContain('Hello!');
  });

  test('a provider with known prices has costs', async () => {
    const openai = await ModelServer.start('openai', [KEY]);
    const of = await newTenant();
    const credential = { apiKey: KEY };
    await save({ provider: 'openai', model: 'gpt-5-mini', baseUrl: openai.baseUrl, credential }, of);
    openai.next({ text: 'Paid.', tokens: { input: 1_000_000, output: 100_000 } });
    expect(await turn('Hi', { of, id: 'paid' })).toMatchObject({ payload: { output: 'Paid.' } });
    const { calls } = await of.calls('paid');
    // 0.25 and 2 dollars for a million tokens, in 2026.
    expect(calls).toMatchObject([{ usage: { costKnown: true, costUsd: 0.45 } }]);
    expect((await of.session('paid')).usage.costUsd).toBe(0.45);
    await openai[Symbol.asyncDispose]();
  });

  test('the tenant’s own price counts for a model that the catalogue does not know', async () => {
    const of = await newTenant();
    await save(
      { provider: 'openai-compatible', model: 'own', baseUrl: server.baseUrl, credential: { apiKey: KEY } },
      of,
    );
    const prices = [{ provider: 'openai-compatible', model: 'own', inputUsdPerMillion: 2, outputUsdPerMillion: 10 }];
    const answer = await of.request({ method: 'PUT', path: '/v1/tenant/model/prices', body: { prices } });
    expect(answer.status, answer.text).toBe(200);
    server.next({ text: 'Paid.', tokens: { input: 1_000_000, output: 100_000 } });
    await turn('Hi', { of, id: 'own-price' });
    expect((await of.calls('own-price')).calls).toMatchObject([{ usage: { costKnown: true, costUsd: 3 } }]);
  });

  test('a conversation is made shorter before it passes the window that the tenant names, or the catalogue', async () => {
    const of = await newTenant();
    await save(
      { provider: 'openai-compatible', model: 'small', baseUrl: server.baseUrl, credential: { apiKey: KEY } },
      of,
    );
    const price = { provider: 'openai-compatible', model: 'small', inputUsdPerMillion: 0, outputUsdPerMillion: 0 };
    const body = { prices: [{ ...price, contextWindow: 1_000 }] };
    expect((await of.request({ method: 'PUT', path: '/v1/tenant/model/prices', body })).status).toBe(200);
    server.next({ text: 'Read.', tokens: { input: 1_600, output: 2 } }, { text: 'It was long.' }, { text: 'Short.' });
    await turn('word '.repeat(1_200), { of, id: 'long' });
    expect(await turn('And?', { of, id: 'long' })).toMatchObject({ payload: { output: 'Short.' } });
    expect((await of.calls('long')).calls).toHaveLength(3);
    expect(JSON.stringify(server.newest.body)).toContain('It was long.');
  });

  test('an overload is waited for as long as the provider says, then the turn goes on', async () => {
    const error = { status: 503, type: 'overloaded', message: 'Come again.' };
    server.next({ error, headers: { 'retry-after': '1' } }, { text: 'Here I am.' });
    const before = Date.now();
    const end = await turn('Hi', { id: 'overload' });
    expect(end).toMatchObject({ type: 'turn.completed', payload: { output: 'Here I am.' } });
    expect(Date.now() - before).toBeGreaterThanOrEqual(1_000);
    const { calls } = await tenant.calls('overload');
    expect(calls.map(({ outcome }) => outcome)).toEqual(['failed', 'completed']);
  });

  test('the ledger says of each attempt how it went', async () => {
    const error = { status: 503, type: 'overloaded', message: 'Come again.' };
    server.next({ error }, { text: 'As far as it', finish: 'length' });
    const end = await turn('Hi', { id: 'attempts' });
    expect(end).toMatchObject({ type: 'turn.completed', payload: { output: 'As far as it' } });
    const { calls } = await tenant.calls('attempts');
    const latencyMs = expect.any(Number) as number;
    expect(calls).toMatchObject([
      { outcome: 'failed', attempt: 1, latencyMs },
      { outcome: 'completed', attempt: 2, finishReason: 'length', latencyMs, firstTokenMs: latencyMs },
    ]);
    expect(calls[0]).not.toHaveProperty('finishReason');
    const items = await tenant.items('attempts');
    expect(items.find(({ type }) => type === 'message.assistant')?.payload).toMatchObject({ truncated: true });
  });

  test('a call of a cut answer reaches no executor; the model is told, and goes on', async () => {
    const search = { name: 'search', inputSchema: { type: 'object' } };
    await tenant.saveAgent('cut', { model: undefined, tools: [search] });
    await tenant.openSession('cut', { agentId: 'cut' });
    server.next({ toolCalls: [{ name: 'search', input: {} }], finish: 'length' }, { text: 'In short, then.' });
    const { turnId } = await tenant.message('cut', 'Hi');
    expect(await tenant.turnEnd('cut', turnId)).toMatchObject({ payload: { output: 'In short, then.' } });
    expect((await tenant.items('cut')).map(({ type }) => type)).not.toContain('action.pending');
    expect(JSON.stringify(server.newest.body)).toContain('tool_call_truncated');
  });

  test('what the provider withheld fails the turn, and is in the ledger', async () => {
    server.next({ text: 'The first thing', finish: 'filtered' });
    expect(await turn('Hi', { id: 'refused' })).toMatchObject({
      ...{ type: 'turn.failed', payload: { error: { code: 'model_refused' } } },
    });
    const { calls } = await tenant.calls('refused');
    expect(calls).toMatchObject([{ outcome: 'failed', finishReason: 'content_filter', usage: { inputTokens: 10 } }]);
    expect(JSON.stringify(await tenant.items('refused'))).not.toContain('The first thing');
  });

  test('what a model thought goes back to it, in a fork too, and no reader sees it unless the settings say so', async () => {
    await using anthropic = await ModelServer.start('anthropic', [KEY]);
    const of = await newTenant();
    const model = { provider: 'anthropic', model: 'claude-sonnet-4-5', settings: { reasoningEffort: 'low' } };
    await save({ ...model, baseUrl: anthropic.baseUrl, credential: { apiKey: KEY } }, of);
    const thought = { text: 'A page would help.', seal: 'c2VhbGVk', redacted: 'cmVkYWN0ZWQ=' };
    const tokens = { input: 100, output: 60, reasoning: 40 };
    anthropic.next({ thought, tokens, toolCalls: [{ name: 'search', input: { q: 'a' } }] }, { text: 'Found.' });
    expect(await turn('Hi', { of, id: 'thought' })).toMatchObject({ payload: { output: 'Found.' } });
    expect(JSON.stringify(anthropic.newest.body)).toContain(`"signature":"${thought.seal}"`);
    expect((await of.calls('thought')).calls[0]).toMatchObject({ usage: { reasoningTokens: 40 } });
    const seen = JSON.stringify([await of.items('thought'), await of.session('thought')]);
    for (const word of [thought.text, thought.seal, thought.redacted]) expect(seen).not.toContain(word);

    const fork = { requestId: 'f', idempotencyKey: 'f', id: 'thought-fork' };
    expect((await of.request({ method: 'POST', path: '/v1/sessions/thought/fork', body: fork })).status).toBe(201);
    const { turnId } = await of.message('thought-fork', 'And?');
    await of.turnEnd('thought-fork', turnId);
    expect(JSON.stringify(anthropic.newest.body)).toContain(`"signature":"${thought.seal}"`);

    const settings = { reasoningEffort: 'low', showReasoning: true };
    await save({ ...model, settings, baseUrl: anthropic.baseUrl, credential: { apiKey: KEY } }, of);
    anthropic.next({ thought, text: 'Shown.' });
    await turn('Hi', { of, id: 'shown' });
    const [said] = (await of.items('shown')).filter(({ type }) => type === 'message.assistant');
    expect(said?.payload).toMatchObject({ text: 'Shown.', reasoning: thought.text });
    expect(JSON.stringify(said)).not.toContain(thought.seal);
  });

  test('a fallback answers in the place of a model that refuses for good, and the ledger has both', async () => {
    await using openai = await ModelServer.start('openai', [KEY]);
    const body = { provider: 'openai', model: 'gpt-5-mini', baseUrl: openai.baseUrl, credential: { apiKey: KEY } };
    const of = await newTenant();
    const first = { provider: 'openai-compatible', model: 'llama-4' };
    await save({ ...first, baseUrl: server.baseUrl, credential: { apiKey: KEY } }, of);
    await save(body, of);
    const fallbacks = [{ provider: 'openai', model: 'gpt-5-mini', settings: { maxOutputTokens: 77 } }];
    await of.saveAgent('agent', { model: { ...first, fallbacks } });
    server.next({ error: { status: 404, type: 'not_found_error', message: 'none' } });
    openai.next({ toolCalls: [{ name: 'search', input: {} }] }, { text: 'Here instead.' });
    expect(await turn('Hi', { of, id: 'instead' })).toMatchObject({ payload: { output: 'Here instead.' } });
    expect(openai.newest.body).toMatchObject({ max_output_tokens: 77 });
    expect((await of.calls('instead')).calls).toMatchObject([
      { outcome: 'failed', provider: 'openai-compatible', attempt: 1 },
      { outcome: 'completed', provider: 'openai', attempt: 1, finishReason: 'tool_calls' },
      { outcome: 'completed', provider: 'openai', attempt: 1, finishReason: 'stop' },
    ]);
  });

  test('a choice of tools holds for the first step of a turn', async () => {
    const settings = { toolChoice: { tool: 'search' } };
    const search = { name: 'search', inputSchema: { type: 'object', required: ['q'] } };
    const model = { provider: 'openai-compatible', model: 'llama-4', settings };
    await tenant.saveAgent('choosing', { model, tools: [search] });
    await tenant.openSession('choosing', { agentId: 'choosing' });
    const asked = server.requests.length;
    server.next({ error: { status: 503, type: 'overloaded', message: 'm' } });
    server.next({ toolCalls: [{ name: 'search', input: {} }] }, { text: 'It did not fit.' });
    const { turnId } = await tenant.message('choosing', 'Hi');
    expect(await tenant.turnEnd('choosing', turnId)).toMatchObject({ payload: { output: 'It did not fit.' } });
    const sent = server.requests.slice(asked).map(({ body }): unknown => Reflect.get(Object(body), 'tool_choice'));
    const forced = { type: 'function', function: { name: 'search' } };
    expect(sent).toEqual([forced, forced, undefined]);
  });

  test('a call of a tool that is not there, with an input that is no JSON, is answered and the turn goes on', async () => {
    server.next({ toolCalls: [{ name: 'search', input: '{"q": ' }] }, { text: 'Without it, then.' });
    const end = await turn('Hi', { id: 'tool' });
    expect(end).toMatchObject({ type: 'turn.completed', payload: { output: 'Without it, then.' } });
    const sent = JSON.stringify(server.newest.body);
    expect(sent).toContain('tool_unknown');
    const items = await tenant.items('tool');
    expect(items.find(({ type }) => type === 'message.assistant')?.payload).toMatchObject({
      toolCalls: [{ name: 'search', input: '{"q": ' }],
    });
  });

  test('tools and the form of the output reach the provider, and what breaks them is answered', async () => {
    const search = {
      name: 'search',
      description: 'Finds pages.',
      inputSchema: { type: 'object', properties: { q: { type: 'string' } }, required: ['q'] },
    };
    const outputSchema = { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] };
    await tenant.saveAgent('tools', { model: undefined, tools: [search], outputSchema });
    await tenant.openSession('form', { agentId: 'tools' });
    server.next(
      { toolCalls: [{ name: 'search', input: '{"q": ' }] },
      { text: 'The number is one.' },
      { text: '{"n":1}' },
    );
    const asked = server.requests.length;
    const { turnId } = await tenant.message('form', 'Hi');
    const end = await tenant.turnEnd('form', turnId);
    expect(end).toMatchObject({ type: 'turn.completed', payload: { output: { n: 1 } } });
    const [first, second, third] = server.requests.slice(asked).map(({ body }) => JSON.stringify(body));
    expect(first).toContain('Finds pages.');
    expect(first).toContain('JSON Schema');
    expect(second).toContain('invalidInput');
    expect(third).toContain('The number is one.');
  });

  test('a rotated credential is used by the next call, whichever node makes it', async () => {
    const rotated = 'sk-the-rotated-key-0123456789';
    const path = '/v1/tenant/model/credentials/openai-compatible';
    for (const [apiKey, at] of [
      [rotated, 0],
      [KEY, 1],
    ] as const) {
      server.takeKeys([apiKey]);
      const host = hosts[at];
      if (host === undefined) throw new Error('no Host runs');
      expect((await tenant.at(host).request({ method: 'PUT', path, body: { apiKey } })).status).toBe(200);
      // At once on the node that did it, within a second on the other.
      expect(await turn('Hi', { of: tenant.at(host) })).toMatchObject({ type: 'turn.completed' });
      for (const node of hosts) {
        await until('the node uses the new key', async () => {
          return (await turn('Hi', { of: tenant.at(node) })).type === 'turn.completed';
        });
        expect(server.newest.headers.authorization).toBe(`Bearer ${apiKey}`);
      }
    }
  });

  test('a wrong key, and none, end the turn with words that help', async () => {
    const of = await newTenant();
    await save(
      { provider: 'openai-compatible', model: 'm', baseUrl: server.baseUrl, credential: { apiKey: 'no' } },
      of,
    );
    const wrong = await turn('Hi', { of });
    expect(wrong).toMatchObject({ type: 'turn.failed', payload: { error: { code: 'model_credential_invalid' } } });
    await save({ provider: 'anthropic', model: 'claude-sonnet-4-5' }, of);
    const none = await turn('Hi', { of });
    expect(none).toMatchObject({ type: 'turn.failed', payload: { error: { code: 'model_credential_missing' } } });
    expect(JSON.stringify(none)).toContain('PUT /v1/tenant/model/credentials/anthropic');
    const unset = await turn('Hi', { of: await newTenant() });
    expect(unset).toMatchObject({ type: 'turn.failed', payload: { error: { code: 'model_not_configured' } } });
  });

  test('the message’s manifest goes before the agent’s, that before the tenant’s selection', async () => {
    const model = (name: string) => ({ provider: 'openai-compatible', model: name });
    await tenant.saveAgent('named', { model: model('of-the-agent') });
    await tenant.openSession('named', { agentId: 'named' });
    const first = await tenant.message('named', 'Hi');
    await tenant.turnEnd('named', first.turnId);
    expect(server.newest.body).toMatchObject({ model: 'of-the-agent' });
    const manifest = { instructions: 'i', model: model('of-the-message') };
    const answer = await tenant.command('named', { type: 'message', content: 'Hi', manifest });
    await tenant.turnEnd('named', String(Reflect.get(Object(answer.json), 'turnId')));
    expect(server.newest.body).toMatchObject({ model: 'of-the-message' });
    await turn('Hi');
    expect(server.newest.body).toMatchObject({ model: 'llama-4' });
  });

  test('a cancel reaches the provider whose call hangs, from whichever node it is sent', async () => {
    const pairs = hosts.flatMap((runs) => hosts.map((cancels) => ({ runs, cancels })));
    for (const [n, { runs, cancels }] of pairs.entries()) {
      const [abandoned, asked] = [server.abandoned, server.requests.length];
      server.next({ silent: true });
      const id = `cancel${n}`;
      await tenant.openSession(id);
      const { turnId } = await tenant.at(runs).message(id, 'Hi');
      await until('the model is asked', () => server.requests.length > asked);
      expect((await tenant.at(cancels).cancel(id)).turnId).toBe(turnId);
      await until('the request is given up', () => server.abandoned > abandoned);
      expect(await tenant.turnEnd(id, turnId)).toMatchObject({ type: 'turn.cancelled' });
      expect((await tenant.calls(id)).calls).toMatchObject([
        { outcome: 'cancelled', usage: { tokensReported: false } },
      ]);
    }
  });

  test('a deleted credential is not used any more, and the fixture model can be selected instead', async () => {
    const of = await newTenant();
    const credential = { apiKey: KEY };
    await save({ provider: 'openai-compatible', model: 'm', baseUrl: server.baseUrl, credential }, of);
    const path = '/v1/tenant/model/credentials/openai-compatible';
    expect((await of.request({ method: 'DELETE', path })).status).toBe(200);
    expect(await turn('Hi', { of })).toMatchObject({ payload: { error: { code: 'model_credential_invalid' } } });
    expect(server.newest.headers.authorization).toBeUndefined();
    await save({ provider: 'fixture', model: 'any' }, of);
    expect(await turn('Hi', { of })).toMatchObject({ payload: { output: 'echo: Hi' } });
  });
});

test('a Host without the fixture model neither lists nor selects it', async () => {
  await using host = await startHost({ env: { AGENT_HOST_FIXTURE_MODEL: '0' } });
  const tenant = await new AdminClient(host).createTenant();
  const model = { provider: 'fixture', model: 'm' };
  for (const [path, body] of [
    ['/v1/tenant/model', model],
    ['/v1/tenant/model/selection', model],
    ['/v1/tenant/config/seed', { requestId: 'r', model }],
    ['/v1/tenant/config/seed', { requestId: 'r', fixtureModel: true }],
  ] as const) {
    const answer = await tenant.request({ method: 'PUT', path, body });
    expect([answer.status, answer.text]).toEqual([400, expect.stringContaining('tenant-fixture-model')]);
  }
  const { text } = await tenant.request({ path: '/v1/tenant/model/catalog' });
  expect(text).not.toContain('fixture');
});
