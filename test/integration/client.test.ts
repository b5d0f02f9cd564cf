import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createClient, Problem, TurnError } from '#src/client/client.ts';
import type { Client, ClientOptions, EventRecord, Manifest } from '#src/client/client.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

async function collected<T>(all: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const one of all) found.push(one);
  return found;
}

const TOOLS: Manifest['tools'] = [
  { name: 'add', inputSchema: { type: 'object' } },
  { name: 'pay', inputSchema: { type: 'object' }, approval: 'always' },
  { name: 'book', inputSchema: { type: 'object' } },
];

describe('the client, at a Host of two nodes', () => {
  let hosts: Host[] = [];
  let tenant: TenantClient;
  let client: Client;
  const token = `executor-${randomUUID()}`;

  const clientOf = (over: Partial<ClientOptions> = {}): Client => {
    const { tenantId, key } = tenant.credentials;
    return createClient({ url: hosts.map(({ url }) => url), key, tenant: tenantId, ...over });
  };

  beforeAll(async () => {
    const first = await startHost();
    hosts = [first];
    hosts = [first, await startHost({ join: first })];
    tenant = await new AdminClient(first).createTenant();
    client = clientOf();
    await client.agents.save('agent', {
      instructions: 'Answer.',
      model: { provider: 'fixture', model: 'any' },
      tools: TOOLS,
    });
    await client.request('PUT /v1/executors', { body: { executors: [{ agentId: 'agent', token }] } });
  });

  afterAll(async () => {
    for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
  });

  const script = (...steps: readonly object[]): string => JSON.stringify({ fixture: steps });

  test('opens a session, asks, and reads the history as it streamed', async () => {
    const session = await client.sessions.open({ agentId: 'agent', labels: { of: 'a test' } });
    const seen: EventRecord[] = [];
    const output = await session.ask('Hello', { onEvent: (event) => seen.push(event) });
    expect(output).toBe('echo: Hello');
    expect(seen.map(({ type }) => type)).toEqual(['message.assistant', 'turn.completed']);
    const history = await collected(session.history({ limit: 2 }));
    expect(history.map(({ type }) => type)).toEqual(['command.message', 'message.assistant', 'turn.completed']);
    expect((await session.get()).status).toBe('idle');
    const listed = await collected(client.sessions.list({ label: ['of=a test'] }));
    expect(listed.map(({ id }) => id)).toEqual([session.id]);
  });

  test('a refusal is a Problem with its code, and a turn that fails a TurnError', async () => {
    const absent = client.session('absent').get();
    await expect(absent).rejects.toBeInstanceOf(Problem);
    await expect(absent).rejects.toMatchObject({ code: 'not_found', status: 404, requestId: expect.any(String) });
    const stream = client.session('absent').events();
    await expect(stream.next()).rejects.toMatchObject({ code: 'not_found' });
    const session = await client.sessions.open({ agentId: 'agent' });
    const failing = session.ask(script({ error: { code: 'model_refused', message: 'no' } }));
    await expect(failing).rejects.toBeInstanceOf(TurnError);
  });

  test('a signal that is aborted ends a stream at once, with its reason', async () => {
    const session = await client.sessions.open({ agentId: 'agent' });
    const controller = new AbortController();
    const reading = collected(session.events({ from: 'latest', signal: controller.signal }));
    const reason = new Error('enough');
    setTimeout(() => controller.abort(reason), 50);
    await expect(reading).rejects.toBe(reason);
  });

  test('one key is one turn, however often its answer is lost', async () => {
    await using proxy = await TcpProxy.start(Number(new URL(hosts[0]?.url ?? '').port));
    const shaky = clientOf({ url: [`http://127.0.0.1:${proxy.port}`, hosts[1]?.url ?? ''], timeoutMs: 2_000 });
    const session = await client.sessions.open({ agentId: 'agent' });
    proxy.dropReplies();
    const { turnId } = await shaky.session(session.id).send('Once');
    for await (const event of session.events()) if (event.type === 'turn.completed') break;
    const history = await collected(session.history());
    expect(history.filter(({ type }) => type === 'command.message').map((one) => one.turnId)).toEqual([turnId]);
  });

  test('reads on over connections that are cut in the middle of anything, and over both nodes', async () => {
    await using first = await TcpProxy.start(Number(new URL(hosts[0]?.url ?? '').port));
    await using second = await TcpProxy.start(Number(new URL(hosts[1]?.url ?? '').port));
    const proxies = [first, second];
    const shaky = clientOf({ url: proxies.map(({ port }) => `http://127.0.0.1:${port}`) });
    const cutAll = (): void => {
      for (const proxy of proxies) proxy.cutAll();
    };
    const session = await client.sessions.open({ agentId: 'agent' });
    const seen: string[] = [];
    let ended = 0;
    const controller = new AbortController();
    const reading = (async () => {
      for await (const { cursor, type } of shaky.session(session.id).events({ signal: controller.signal })) {
        seen.push(cursor);
        if (type === 'turn.completed') ended++;
        if (ended === 12) return;
      }
    })();
    let sent = 0;
    try {
      for (let turn = 0; turn < 12; turn++) {
        for (const [at, proxy] of proxies.entries()) proxy.cutAfter(200 + ((turn * 137 + at * 71) % 900));
        await session.ask(`Message ${turn} `.repeat(20));
        sent++;
        if (turn % 3 === 0) cutAll();
      }
      for (const proxy of proxies) proxy.pass();
      await reading;
    } finally {
      controller.abort();
    }
    expect(sent).toBe(12);
    expect(seen).toEqual((await collected(session.history())).map(({ cursor }) => cursor));
  });

  test('runs tools: many at once, a person approves, a handler asks, a node goes away', async () => {
    const errors: unknown[] = [];
    const worker = clientOf({ key: token });
    const executor = worker.executor(
      'agent',
      {
        add: async ({ a, b }) => await Promise.resolve(a + b),
        pay: ({ amount }) => `paid ${amount}`,
        book: (_input, { ask }) => ({ seat: ask('Which seat?') }),
      },
      { concurrency: 4, onError: (error) => errors.push(error) },
    );
    const sums = Array.from({ length: 8 }, (_, a) => ({ name: 'add', input: { a, b: 1 } }));
    const session = await client.sessions.open({ agentId: 'agent' });
    expect(await session.ask(script({ toolCalls: sums }, { text: 'done' }))).toBe('done');
    const added = (await collected(session.history())).flatMap((event) =>
      event.type === 'action.completed' && event.payload.outcome.kind === 'completed'
        ? [event.payload.outcome.output]
        : [],
    );
    expect(new Set(added)).toEqual(new Set([1, 2, 3, 4, 5, 6, 7, 8]));
    expect(added).toHaveLength(8);

    const asked: string[] = [];
    const answers = await session.ask(
      script(
        {
          toolCalls: [
            { name: 'pay', input: { amount: 5 } },
            { name: 'book', input: {} },
          ],
        },
        { text: 'all done' },
      ),
      {
        answer: ({ kind, prompt }) => {
          asked.push(kind);
          return prompt === 'Which seat?' ? '12A' : true;
        },
      },
    );
    expect(answers).toBe('all done');
    expect(asked.toSorted()).toEqual(['approval', 'question']);
    const outputs = (await collected(session.history())).flatMap((event) =>
      event.type === 'action.completed' && event.payload.outcome.kind === 'completed'
        ? [event.payload.outcome.output]
        : [],
    );
    expect(outputs).toEqual(expect.arrayContaining(['paid 5', { seat: '12A' }]));

    await hosts[1]?.restart();
    const again = clientOf({ url: hosts.map(({ url }) => url) });
    expect(await again.session(session.id).ask(script({ toolCalls: [sums[0] ?? {}] }, { text: 'still' }))).toBe(
      'still',
    );
    await executor.stop();
    await until('its stream has ended', async () => {
      const { executors } = await client.request('GET /v1/executors', {});
      return executors.every(({ connected }) => !connected);
    });
  });

  test('an executor whose token is not valid says so', async () => {
    const executor = clientOf({ key: 'no-such-token-anywhere' }).executor('agent', {});
    await expect(executor.done).rejects.toMatchObject({ code: 'credential_invalid' });
    await executor.stop();
  });

  test('files go up and come down as streams', async () => {
    const session = await client.sessions.open({ agentId: 'agent' });
    const part = new Uint8Array(64 * 1024).fill(7);
    let left = 32;
    const stream = new ReadableStream<Uint8Array>({
      pull: (controller) => (left-- > 0 ? controller.enqueue(part) : controller.close()),
    });
    const { artifact, version } = await client.artifacts.upload('big.bin', stream, {
      sessionId: session.id,
      contentType: 'application/octet-stream',
      labels: { kind: 'test' },
    });
    expect(version.size).toBe(32 * part.length);
    const download = await client.artifacts.download(artifact.artifactId);
    expect(download.size).toBe(version.size);
    let bytes = 0;
    for await (const chunk of download.stream) bytes += chunk.length;
    expect(bytes).toBe(version.size);
    await client.artifacts.delete(artifact.artifactId);
    expect(await collected(client.artifacts.list({ sessionId: session.id }))).toEqual([]);
  });
});
