import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { modelClient } from '#src/drivers/model/client.ts';
import type { ModelConnection } from '#src/drivers/model/port.ts';
import { CALLABLE, KEY, ModelCalls, NEVER } from '../support/model-calls.ts';
import { ModelServer } from '../support/model-server.ts';
import { WIRES } from '../support/model-wire.ts';
import type { Wire } from '../support/model-wire.ts';
import { until } from '../support/wait-until.ts';

describe.each(WIRES)('%s', (wire) => {
  const calls = new ModelCalls(wire);

  test('an overload says when to come again', async () => {
    const overloaded = { status: wire === 'anthropic' ? 529 : 503, type: 'overloaded_error', message: 'm' };
    const limited = { status: 429, type: 'rate_limit_error', message: 'm' };
    const cases = [
      [overloaded, {}, 'model_overloaded', 0],
      [overloaded, { 'retry-after': '7' }, 'model_overloaded', 7_000],
      [limited, { 'retry-after': '0.5' }, 'model_rate_limited', 500],
      [limited, { 'retry-after-ms': '1234', 'retry-after': '99' }, 'model_rate_limited', 1_234],
      [limited, { 'retry-after': 'Thu, 01 Jan 2026 00:00:30 GMT' }, 'model_rate_limited', 30_000],
      [limited, { 'retry-after': 'Wed, 31 Dec 2025 00:00:00 GMT' }, 'model_rate_limited', 0],
      [limited, { 'retry-after': 'soon' }, 'model_rate_limited', 0],
      [limited, { 'retry-after': '999999999' }, 'model_rate_limited', 86_400_000],
      [{ status: 500, type: 'api_error', message: 'm' }, {}, 'model_provider_error', 0],
      [{ status: 502, type: 'api_error', message: 'm' }, {}, 'model_provider_error', 0],
      [{ status: 408, type: 'timeout', message: 'm' }, {}, 'model_timeout', 0],
    ] as const;
    for (const [error, headers, code, retryAfterMs] of cases) {
      calls.server.next({ error, headers });
      expect(await calls.failure(), code).toMatchObject({ error: { code }, retryAfterMs });
    }
    const asked = calls.server.requests.length;
    calls.server.next({ error: overloaded }, { text: 'after' });
    await calls.failure();
    expect(calls.server.requests.length, 'nothing is tried again by itself').toBe(asked + 1);
    expect(await calls.call()).toMatchObject({ text: 'after' });
  });

  test('what no repetition mends is terminal, and says what to do', async () => {
    const cases = [
      [400, 'invalid_request_error', 'model_request_invalid'],
      [402, 'billing_error', 'model_quota_exhausted'],
      [403, 'permission_error', 'model_forbidden'],
      [404, 'not_found_error', 'model_not_found'],
      [413, 'request_too_large', 'model_request_too_large'],
      [422, 'unprocessable', 'model_request_invalid'],
    ] as const;
    for (const [status, type, code] of cases) {
      calls.server.next({ error: { status, type, message: 'the words of the provider' } });
      const { error, retryAfterMs } = await calls.failure();
      expect(error.code).toBe(code);
      expect(retryAfterMs).toBeNull();
      expect(error.message.length).toBeGreaterThan(30);
      expect(error.message).not.toContain('the words of the provider');
    }
    calls.server.next({ error: { status: 429, type: 'insufficient_quota', message: 'm' } });
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_quota_exhausted' }, retryAfterMs: null });
    calls.server.next({ raw: '<html>Not here</html>', status: 405 });
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_request_invalid' }, retryAfterMs: null });
  });

  test('a conversation that does not fit is told apart', async () => {
    const words: Readonly<Record<Wire, readonly [string, string]>> = {
      anthropic: ['invalid_request_error', 'prompt is too long: 250000 tokens > 200000 maximum'],
      openai: ['context_length_exceeded', 'Your input exceeds the context window of this model.'],
      google: [
        'INVALID_ARGUMENT',
        'The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).',
      ],
      'openai-compatible': [
        'BadRequestError',
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
      ],
    };
    const [type, message] = words[wire];
    calls.server.next({ error: { status: 400, type, message } });
    expect(await calls.failure()).toMatchObject({
      contextOverflow: true,
      error: { code: 'model_context_overflow' },
      retryAfterMs: null,
    });
    calls.server.next({ error: { status: 400, type: 'invalid_request_error', message: 'tools.0.name is too long' } });
    expect((await calls.failure()).contextOverflow).toBeUndefined();
  });

  test('a wrong key, and an answer that repeats it, reveal nothing', async () => {
    const secret = 'sk-planted-secret-0123456789';
    const over: ModelConnection = { baseUrl: calls.server.baseUrl, key: { kind: 'known', apiKey: secret } };
    const wrong = await calls.failure(over);
    expect(wrong).toMatchObject({ error: { code: 'model_credential_invalid' }, retryAfterMs: null });
    calls.server.takeKeys([KEY, secret]);
    for (const status of [400, 401, 403, 404, 418, 429, 500, 529]) {
      calls.server.next({ echo: status });
      expect(JSON.stringify(await calls.failure(over))).not.toContain('planted');
    }
    calls.server.takeKeys([KEY]);
  });

  test('a body that is cut off, no JSON, or of another form can be tried again', async () => {
    for (const cut of ['broken', 'closed', 'failed'] as const) {
      calls.server.next({ cut });
      const { error, retryAfterMs, mayBeBilled } = await calls.failure();
      const codes = ['model_answer_invalid', 'model_unreachable', 'model_overloaded', 'model_provider_error'];
      expect(codes, cut).toContain(error.code);
      expect({ retryAfterMs, mayBeBilled }, cut).toEqual({ retryAfterMs: 0, mayBeBilled: true });
    }
    for (const raw of ['', 'null', '[]', '<html>', '{"candidates":7,"content":7,"output":7,"choices":7}']) {
      calls.server.next({ raw });
      const { error, retryAfterMs } = await calls.failure();
      expect(error.code, raw).toMatch(/^model_(answer_invalid|provider_error)$/);
      expect(retryAfterMs).toBe(0);
    }
    calls.server.next({ raw: `{"pad":"${'x'.repeat(9_000_000)}"}` });
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_answer_too_large' }, retryAfterMs: null });
    // Nine thousand bytes on their way.
    const raw = gzipSync(`{"pad":"${'x'.repeat(9_000_000)}"}`);
    calls.server.next({ raw, headers: { 'content-encoding': 'gzip' } });
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_answer_too_large' }, retryAfterMs: null });
    calls.server.next({ text: 'x'.repeat(1_000_001) });
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_answer_too_large' }, retryAfterMs: null });
  });

  test('a connection that is closed or refused can be tried again', async () => {
    calls.server.next({ hangUp: true });
    expect(await calls.failure()).toMatchObject({ error: { code: 'model_unreachable' }, retryAfterMs: 0 });
    const gone = await ModelServer.start(wire);
    const { baseUrl } = gone;
    await gone[Symbol.asyncDispose]();
    const refused = await calls.failure({ baseUrl, key: { kind: 'known', apiKey: KEY } });
    expect(refused).toMatchObject({ error: { code: 'model_unreachable' }, retryAfterMs: 0 });
    expect(refused.error.message).toContain('ECONNREFUSED');
    expect(refused.error.message).not.toContain('127.0.0.1');
  });

  test('an abort ends the request, here and at the provider', async () => {
    const [abort, abandoned, asked] = [new AbortController(), calls.server.abandoned, calls.server.requests.length];
    calls.server.next({ silent: true });
    const running = calls.driver.call(calls.request(), abort.signal);
    await until('the model is asked', () => calls.server.requests.length > asked);
    abort.abort(new Error('no longer wanted'));
    expect(await running).toMatchObject({ kind: 'failed', error: { code: 'cancelled' }, retryAfterMs: null });
    await until('the connection is closed', () => calls.server.abandoned > abandoned);
    const before = AbortSignal.abort();
    expect(await calls.driver.call(calls.request(), before)).toMatchObject({ error: { code: 'cancelled' } });
    expect(calls.server.requests.length).toBe(asked + 1);
  });

  test('a silence that is too long is a time-out', async () => {
    const impatient = modelClient({ policy: CALLABLE, silenceMs: 50 });
    calls.server.next({ silent: true });
    expect(await calls.with(impatient).call(calls.request(), NEVER)).toMatchObject({
      error: { code: 'model_timeout' },
      retryAfterMs: 0,
    });
    await impatient.close();
  });

  test('no redirect is followed', async () => {
    const other = await ModelServer.start(wire);
    for (const status of [301, 307]) {
      calls.server.next({ raw: '', status, headers: { location: `${other.baseUrl}/x` } });
      expect(await calls.failure()).toMatchObject({ error: { code: 'model_address_redirects' }, retryAfterMs: null });
    }
    expect(other.requests).toEqual([]);
    await other[Symbol.asyncDispose]();
  });

  test('nobody is asked without an address that may be called and a credential', async () => {
    const asked = calls.server.requests.length;
    const key = { kind: 'known', apiKey: KEY } as const;
    for (const baseUrl of ['https://169.254.169.254/v1', 'https://[fe80::1]/v1', 'http://10.0.0.1/v1']) {
      expect(await calls.failure({ baseUrl, key })).toMatchObject({
        error: { code: 'model_address_refused' },
        retryAfterMs: null,
      });
    }
    const { baseUrl } = calls.server;
    const unreadable = await calls.failure({ baseUrl, key: { kind: 'unreadable' } });
    expect(unreadable).toMatchObject({ error: { code: 'model_credential_unreadable' }, retryAfterMs: 1_000 });
    expect(calls.server.requests.length).toBe(asked);
  });
});

describe.each(WIRES.filter((wire) => wire !== 'openai-compatible'))('%s alone', (wire) => {
  const calls = new ModelCalls(wire);

  test('nobody is asked without a credential', async () => {
    const asked = calls.server.requests.length;
    const none = await calls.failure({ baseUrl: calls.server.baseUrl, key: { kind: 'none' } });
    expect(none).toMatchObject({ error: { code: 'model_credential_missing' }, retryAfterMs: null });
    expect(none.error.message).toContain(`PUT /v1/tenant/model/credentials/${wire}`);
    expect(calls.server.requests.length).toBe(asked);
  });
});

describe('one provider only', () => {
  const own = new ModelCalls('openai-compatible');
  const openai = new ModelCalls('openai');
  const anthropic = new ModelCalls('anthropic');

  test('a server of the tenant’s own may ask for no credential, and has no address by default', async () => {
    await own.call({}, { baseUrl: own.server.baseUrl, key: { kind: 'none' } });
    expect(own.server.newest.headers.authorization).toBeUndefined();
    const { key } = own.known();
    expect(await own.failure({ baseUrl: null, key })).toMatchObject({ error: { code: 'model_address_missing' } });
  });

  test('this machine may be named, too', async () => {
    const baseUrl = own.server.baseUrl.replace('127.0.0.1', 'localhost');
    expect(await own.call({}, { ...own.known(), baseUrl })).toMatchObject({ text: 'pong' });
  });

  test('OpenAI tells of its own failures in the stream', async () => {
    for (const [code, wanted] of [
      ['server_error', 'model_provider_error'],
      ['rate_limit_exceeded', 'model_rate_limited'],
    ] as const) {
      const response = { id: 'r', created_at: 1, model: 'm', status: 'failed', error: { code, message: 'm' } };
      const frame = { type: 'response.failed', sequence_number: 1, response };
      openai.server.next({
        raw: `data: ${JSON.stringify(frame)}\n\n`,
        headers: { 'content-type': 'text/event-stream' },
      });
      expect(await openai.failure()).toMatchObject({ error: { code: wanted }, retryAfterMs: 0 });
    }
    // What the model said about contexts is no report of an error.
    openai.server.next({ raw: '{"output":[{"text":"The prompt is too long' });
    expect(await openai.failure()).toMatchObject({ error: { code: 'model_answer_invalid' }, retryAfterMs: 0 });
  });

  test('Anthropic stops in the middle when the context is full', async () => {
    anthropic.server.next({ text: 'half of', finish: 'context', tokens: { input: 9, output: 2 } });
    const usage = { inputTokens: 9, tokensReported: true };
    expect(await anthropic.failure()).toMatchObject({ contextOverflow: true, usage });
  });

  test('Google says in the body when to come again, and that a key is wrong', async () => {
    const google = (status: number, details: unknown) => ({
      raw: JSON.stringify({ error: { code: status, message: 'm', status: 'S', details: [details] } }),
      status,
    });
    own.server.next(google(429, { '@type': 'type.googleapis.com/google.rpc.RetryInfo', retryDelay: '34.5s' }));
    expect(await own.failure()).toMatchObject({ error: { code: 'model_rate_limited' }, retryAfterMs: 34_500 });
    own.server.next(google(400, { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason: 'API_KEY_INVALID' }));
    expect(await own.failure()).toMatchObject({ error: { code: 'model_credential_invalid' }, retryAfterMs: null });
  });
});
