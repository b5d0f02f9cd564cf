import { once } from 'node:events';
import { createServer } from 'node:net';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { createMemoryHost } from '#src/in-memory/index.ts';
import type { FailurePoint, MemoryHost, MemoryTenant, ModelStep } from '#src/in-memory/index.ts';
import { AUDIENCE, claims, ISSUER, SigningKey } from '../support/tokens.ts';
import { until } from '../support/wait-until.ts';

// Each Host brings a database, which takes seconds on a loaded machine.
vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });

const MODEL = { provider: 'fixture', model: 'any' } as const;
const ADD = { name: 'add', inputSchema: { type: 'object' } };

async function withAgent(host: MemoryHost, manifest: object = {}): Promise<MemoryTenant> {
  const tenant = await host.tenant();
  await tenant.client.agents.save('agent', { instructions: 'Answer.', model: MODEL, ...manifest });
  return tenant;
}

describe('requests without a port', () => {
  let host: MemoryHost;

  beforeAll(async () => {
    host = await createMemoryHost();
  });

  afterAll(async () => {
    await host.close();
  });

  test('the client talks to it, and a turn is run', async () => {
    const { client } = await withAgent(host);
    const session = await client.sessions.open({ agentId: 'agent' });
    expect(await session.ask('hello')).toBe('echo: hello');
    const end = await host.until(session.id, 'turn.completed');
    expect(end.payload.usage.totalTokens).toBeGreaterThan(0);
  });

  test('a path, an address and a request are answered, with bodies, statuses and headers', async () => {
    const headers = { authorization: `Bearer ${host.adminKey}`, 'svc-protocol': '8' };
    for (const input of ['/ready', new URL('http://any.invalid/ready'), new Request('http://any.invalid/ready')]) {
      const answer = await host.fetch(input);
      expect([answer.status, answer instanceof Response]).toEqual([200, true]);
      expect(await answer.json()).toMatchObject({ status: 'ready' });
    }
    const unknown = await host.fetch('/nowhere', { headers });
    expect(unknown.status).toBe(404);
    expect(unknown.headers.get('x-request-id')).toBe(Object(await unknown.json()).requestId);
    const body = JSON.stringify({ name: 'Made by hand' });
    const made = await host.fetch('/v1/admin/tenants', {
      ...{ method: 'POST', body },
      headers: { ...headers, 'content-type': 'application/json' },
    });
    expect(await made.json()).toMatchObject({ tenant: { name: 'Made by hand' } });
  });

  test('a stream arrives as it is written, and one that is aborted has ended at the Host', async () => {
    const { client } = await withAgent(host);
    const session = await client.sessions.open({ agentId: 'agent' });
    const end = new AbortController();
    const seen: string[] = [];
    const reading = (async () => {
      for await (const event of session.events({ signal: end.signal })) seen.push(event.type);
    })();
    await session.send('one');
    await until('the first turn is seen', () => seen.includes('turn.completed'));
    end.abort();
    await reading.catch(() => undefined);
    const before = seen.length;
    expect(await session.ask('two')).toBe('echo: two');
    expect(seen).toHaveLength(before);
  });

  test('a file goes up and comes down as bytes', async () => {
    const { client } = await withAgent(host);
    const bytes = new Uint8Array(300_000).map((_, n) => n % 251);
    const { artifact } = await client.artifacts.upload('a.bin', bytes);
    const { stream } = await client.artifacts.download(artifact.artifactId);
    expect(new Uint8Array(await new Response(stream).arrayBuffer())).toEqual(bytes);
  });
});

test('it listens where it is asked to, and several live side by side and know nothing of each other', async () => {
  await using one = await createMemoryHost();
  await using other = await createMemoryHost();
  const { client } = await withAgent(one);
  const url = await one.listen();
  expect((await fetch(`${url}/health`)).status).toBe(200);
  const session = await client.sessions.open({ agentId: 'agent' });
  expect(await session.ask('hello')).toBe('echo: hello');
  await withAgent(other);
  const tenants = async (host: MemoryHost) => (await host.client({}).request('GET /v1/admin/tenants', {})).tenants;
  expect([(await tenants(one)).length, (await tenants(other)).length]).toEqual([1, 1]);
  await one.close();
  await expect(fetch(`${url}/health`)).rejects.toThrow('fetch failed');
  await expect(one.fetch('/health')).rejects.toThrow('fetch failed');
  // Its port is free again.
  const server = createServer().listen(Number(new URL(url).port), '127.0.0.1');
  await once(server, 'listening');
  server.close();
  expect((await other.fetch('/health')).status).toBe(200);
});

test('functions are its tools, and a function or a list is its model', async () => {
  const asked: ModelStep[] = [];
  await using host = await createMemoryHost({
    model: (step) => {
      asked.push(step);
      return step.step === 0 ? { toolCalls: [{ name: 'add', input: { a: 1, b: 2 } }] } : 'It is 3.';
    },
  });
  const tenant = await withAgent(host, { tools: [ADD] });
  const inputs: unknown[] = [];
  await tenant.tools('agent', {
    add: (input) => {
      inputs.push(input);
      return input.a + input.b;
    },
  });
  const session = await tenant.client.sessions.open({ agentId: 'agent' });
  expect(await session.ask('1 + 2?')).toBe('It is 3.');
  expect(inputs).toEqual([{ a: 1, b: 2 }]);
  expect(asked.map(({ step, tools, instructions }) => ({ step, tools, instructions }))).toEqual(
    [0, 1].map((step) => ({ step, tools: ['add'], instructions: 'Answer.' })),
  );
  expect(asked[1]?.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'tool']);
  await using listed = await createMemoryHost({ model: ['first'] });
  const other = await withAgent(listed);
  const talk = await other.client.sessions.open({ agentId: 'agent' });
  expect([await talk.ask('a'), await talk.ask('b')]).toEqual(['first', 'first']);
});

describe('a worker that is killed', () => {
  test.each(['turn.claimed', 'model.called', 'model.answered', 'model.recorded', 'tool.finished'] as FailurePoint[])(
    'at %s: another takes over, and the tool has run once',
    async (point) => {
      let runs = 0;
      await using host = await createMemoryHost({ model: [{ toolCalls: [{ name: 'add', input: {} }] }, 'Done.'] });
      const tenant = await withAgent(host, { tools: [ADD] });
      await tenant.tools('agent', { add: () => ++runs });
      const session = await tenant.client.sessions.open({ agentId: 'agent' });
      const died = host.fail(point);
      expect(await session.ask('go')).toBe('Done.');
      await died;
      expect(runs).toBe(1);
      const events: string[] = [];
      for await (const { type } of session.events()) {
        events.push(type);
        if (type === 'turn.completed') break;
      }
      expect(events.filter((type) => type === 'action.completed')).toHaveLength(1);
    },
  );

  test('takes only the turns of its own Host with it', async () => {
    await using one = await createMemoryHost({ model: ['one'] });
    await using other = await createMemoryHost({ model: ['other'] });
    const died = one.fail('model.answered');
    const ask = async (host: MemoryHost): Promise<unknown> => {
      const { client } = await withAgent(host);
      return await (await client.sessions.open({ agentId: 'agent' })).ask('hello');
    };
    expect(await ask(other)).toBe('other');
    expect(await ask(one)).toBe('one');
    await died;
  });
});

describe('its clock', () => {
  const start = Date.parse('2030-01-01T00:00:00Z');

  test('is what events are dated by, and goes forward only', async () => {
    await using host = await createMemoryHost({ now: start });
    const { client } = await withAgent(host);
    const session = await client.sessions.open({ agentId: 'agent' });
    await session.ask('one');
    host.clock.set('2030-02-01T00:00:00Z');
    await session.ask('two');
    const months = [];
    for (const nth of [1, 2])
      months.push((await host.until(session.id, 'turn.completed', { nth })).createdAt.slice(0, 7));
    expect(months).toEqual(['2030-01', '2030-02']);
    expect(() => host.clock.set(start)).toThrow(RangeError);
    expect(() => host.clock.advance(-1)).toThrow(RangeError);
    expect(host.clock.now().getTime()).toBeGreaterThan(Date.parse('2030-02-01T00:00:00Z'));
  });

  test('tells which tokens are good, and up to when pages are complete', async () => {
    await using host = await createMemoryHost({ now: start });
    const tenant = await withAgent(host);
    const key = new SigningKey('one');
    await tenant.client.request('PUT /v1/tenant/issuers/{name}', {
      params: { name: 'people' },
      body: { issuer: ISSUER, audience: AUDIENCE, allowedScopes: ['sessions:own'], jwks: { keys: [key.jwk] } },
    });
    const iat = start / 1_000;
    const person = host.client({ tenant: tenant.id, key: key.token(claims({ iat, exp: iat + 300 })) });
    const session = await person.sessions.open({ agentId: 'agent' });
    await session.ask('one');
    const shown = async (): Promise<readonly string[]> => {
      const calls = { params: { sessionId: session.id } };
      const pages = await Promise.all([
        tenant.client.request('GET /v1/sessions', {}),
        tenant.client.request('GET /v1/sessions/{sessionId}/calls/model', calls),
      ]);
      return pages.map(({ asOf }) => asOf.slice(0, 13));
    };
    expect(await shown()).toEqual(['2030-01-01T00', '2030-01-01T00']);
    host.clock.advance(3_600_000);
    expect(await shown()).toEqual(['2030-01-01T01', '2030-01-01T01']);
    await expect(session.send('two')).rejects.toMatchObject({ code: 'token_expired' });
  });

  test('ends the lease of a claim that nobody keeps, and another executor gets the action', async () => {
    await using host = await createMemoryHost({ model: [{ toolCalls: [{ name: 'add', input: {} }] }, 'Done.'] });
    const tenant = await withAgent(host, { tools: [ADD] });
    const session = await tenant.client.sessions.open({ agentId: 'agent' });
    await session.send('go');
    await host.until(session.id, 'action.pending');
    const token = 'an-executor-that-forgets-0123456789';
    await tenant.client.request('PUT /v1/executors', { body: { executors: [{ agentId: 'agent', token }] } });
    const executor = host.client({ tenant: tenant.id, key: token });
    const claim = async () => {
      const body = { requestId: crypto.randomUUID(), limit: 1 };
      return (await executor.request('POST /v1/actions/claim', { body })).claims;
    };
    const [first] = await claim();
    expect(first?.generation).toBe(1);
    expect(await claim()).toEqual([]);
    // A lease lasts 30 s.
    host.clock.advance(31_000);
    await host.until(session.id, 'action.uncertain');
  });

  test('brings the deadline of a turn that waits', async () => {
    await using host = await createMemoryHost({ model: [{ toolCalls: [{ name: 'add', input: {} }] }] });
    const tenant = await withAgent(host, { tools: [ADD], limits: { maxTurnSeconds: 600 } });
    const session = await tenant.client.sessions.open({ agentId: 'agent' });
    await session.send('go');
    await host.until(session.id, 'action.pending');
    host.clock.advance(600_000);
    const { payload } = await host.until(session.id, 'turn.failed');
    expect(payload.error.code).toBe('turn_timeout');
  });
});

describe('its end', () => {
  test('does not wait for a tool that ignores its signal', async () => {
    const host = await createMemoryHost({ model: [{ toolCalls: [{ name: 'add', input: {} }] }] });
    const tenant = await withAgent(host, { tools: [ADD] });
    const begun = Promise.withResolvers<void>();
    await tenant.tools('agent', {
      add: async () => {
        begun.resolve();
        await new Promise(() => undefined);
      },
    });
    const session = await tenant.client.sessions.open({ agentId: 'agent' });
    await session.send('go');
    await begun.promise;
    await host.close();
    await expect(host.fetch('/ready')).rejects.toThrow(Error);
  });

  test('does not wait for a script that ignores its signal', async () => {
    const begun = Promise.withResolvers<void>();
    const model = async (): Promise<string> => {
      begun.resolve();
      return await new Promise<string>(() => undefined);
    };
    const host = await createMemoryHost({ model });
    const { client } = await withAgent(host);
    const session = await client.sessions.open({ agentId: 'agent' });
    await session.send('go');
    await begun.promise;
    await host.close();
    await expect(host.fetch('/ready')).rejects.toThrow(Error);
  });

  test('takes a worker with it that is just taking over', async () => {
    const host = await createMemoryHost();
    const { client } = await withAgent(host);
    const session = await client.sessions.open({ agentId: 'agent' });
    const died = host.fail('turn.claimed');
    await session.send('go');
    await died;
    await host.close();
    await expect(host.fetch('/ready')).rejects.toThrow(Error);
  });
});

test('an event that does not come is missed by name, with what came instead', async () => {
  await using host = await createMemoryHost();
  const { client } = await withAgent(host);
  const session = await client.sessions.open({ agentId: 'agent' });
  await session.ask('hello');
  await expect(host.until(session.id, 'turn.paused', { withinMs: 50 })).rejects.toThrow(
    `the session ${session.id} had no turn.paused within 50 ms; it had command.message, message.assistant, turn.completed`,
  );
  await expect(host.until('none', 'turn.completed', { withinMs: 50 })).rejects.toThrow('it had nothing');
});
