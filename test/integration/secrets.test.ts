import { createHash, createHmac } from 'node:crypto';
import { glob, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { AdminClient, send, TenantClient } from '../support/client.ts';
import type { Answer, RawRequest } from '../support/client.ts';
import { SseReader } from '../support/sse.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { ModelServer } from '../support/model-server.ts';
import { argumentsOf, holds, planted, spoken } from '../support/planted.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { claims, registration, SigningKey } from '../support/tokens.ts';
import { keepInVaults, plantedForVaults } from '../support/vault-secrets.ts';
import { until } from '../support/wait-until.ts';

const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

const ADMIN_KEY = planted('admin-key');
const OWN_KEY = planted('application-key');
const MANAGEMENT_KEY = planted('management-key');
const EXECUTOR_TOKEN = planted('executor-token');
const OLD_EXECUTOR_TOKEN = planted('old-executor-token');
const BAD_EXECUTOR_TOKEN = `${planted('bad-executor-token')} `;
const HEADER = planted('header');
const BASIC = planted('basic');
const UNKNOWN_KEY = planted('unknown-key');
const URL_PASSWORD = planted('url-password');
const QUERY = planted('query');
const PRIVATE_MEMBER = planted('private-member');
const NO_HASH = planted('no-hash');
const RAW = planted('raw-bytes');
const MODEL_KEY = planted('model-key');
const OLD_MODEL_KEY = planted('old-model-key');
const BAD_MODEL_KEY = planted('bad-model-key');
const VAULT_SECRETS = plantedForVaults();
/** No secret: shows that the search finds what is there. */
const MARKER = planted('visible-name');

/** The only files that may hold a secret, all of them the Host's own, readable by its account alone. */
const SECRET_FILES = [
  ...['admin-key', 'nats-url', 'database-url', 'kek'],
  ...['nats/nats-password', 'nats/nats-server.conf', 'postgres/postgres-password'],
];

describe('secrets, at the log level trace', () => {
  let host: Host;
  let cut: Host;
  let database: TcpProxy;
  let log: TcpProxy;
  let model: ModelServer;
  let tenant: TenantClient;
  /** By what they are. Those that a response shows once are looked for elsewhere only. */
  const secrets = new Map<string, string>();
  const shownOnce = new Map<string, string>();
  const answers: Answer[] = [];
  const directories: string[] = [];
  const outputs: string[] = [];

  beforeAll(async () => {
    const env = { AGENT_HOST_LOG_LEVEL: 'trace', AGENT_HOST_FAILED_AUTH_PER_SECOND: '100000' };
    host = await startHost({ env: { ...env, AGENT_HOST_ADMIN_KEY: ADMIN_KEY } });
    const [natsUrl, databaseUrl] = [new URL(await host.file('nats-url')), new URL(await host.file('database-url'))];
    log = await TcpProxy.start(Number(natsUrl.port));
    database = await TcpProxy.start(Number(databaseUrl.port));
    natsUrl.port = String(log.port);
    databaseUrl.port = String(database.port);
    cut = await startHost({ join: host, env: { ...env, NATS_URL: natsUrl.href, DATABASE_URL: databaseUrl.href } });
    secrets.set('the NATS password', natsUrl.password);
    secrets.set('the Postgres password', databaseUrl.password);
    for (const [name, value] of Object.entries({ ADMIN_KEY, OWN_KEY, MANAGEMENT_KEY, HEADER, BASIC, UNKNOWN_KEY })) {
      secrets.set(name, value);
    }
    for (const [name, value] of Object.entries({ EXECUTOR_TOKEN, OLD_EXECUTOR_TOKEN, BAD_EXECUTOR_TOKEN }))
      secrets.set(name, value.trim());
    for (const [name, value] of Object.entries({ URL_PASSWORD, QUERY, PRIVATE_MEMBER, NO_HASH, RAW, MODEL_KEY }))
      secrets.set(name, value);
    for (const [name, value] of Object.entries(VAULT_SECRETS)) secrets.set(`${name} in a vault`, value);
    secrets.set('OLD_MODEL_KEY', OLD_MODEL_KEY).set('BAD_MODEL_KEY', BAD_MODEL_KEY);
    model = await ModelServer.start('openai-compatible');
    directories.push(host.dataDir, cut.dataDir);
    tenant = await makeTenant();
  });

  afterAll(async () => {
    await cut[Symbol.asyncDispose]();
    await database[Symbol.asyncDispose]();
    await log[Symbol.asyncDispose]();
    await model[Symbol.asyncDispose]();
    await host[Symbol.asyncDispose]();
  });

  async function ask(raw: RawRequest & { readonly to?: Host; readonly as?: TenantClient }): Promise<Answer> {
    const { to = host, as = tenant, headers, ...rest } = raw;
    const noise = {
      'x-planted': HEADER,
      cookie: `session=${HEADER}`,
      'user-agent': HEADER,
      'proxy-authorization': HEADER,
    };
    const all = Object.entries({ ...as.headers, ...noise, ...headers }).filter(([, value]) => value !== undefined);
    const answer = await send(to.url, { ...rest, headers: Object.fromEntries(all) });
    answers.push(answer);
    return answer;
  }

  async function makeTenant(): Promise<TenantClient> {
    const made = await new AdminClient(host).createTenant({ name: MARKER, credentialHash: sha256(OWN_KEY) });
    const { tenantId } = made;
    secrets.set('the studio key', createHmac('sha256', ADMIN_KEY).update(`studio\0${tenantId}`).digest('hex'));
    return new TenantClient({ url: host.url, tenantId, key: OWN_KEY });
  }

  const withKey = (key: string): TenantClient => new TenantClient({ ...tenant.credentials, key });

  test('are used in every way that is right', async () => {
    const put = async (path: string, body: unknown): Promise<Answer> => {
      const answer = await ask({ method: 'PUT', path, body });
      expect(answer.status, answer.text).toBe(200);
      return answer;
    };
    await put('/v1/agents/agent', { manifest: { instructions: 'i', model: { provider: 'fixture', model: 'm' } } });
    await put('/v1/sessions/room', { agentId: 'agent' });
    await put('/v1/tenant/keys/ops', { role: 'management', credentialHash: sha256(MANAGEMENT_KEY) });
    for (const token of [OLD_EXECUTOR_TOKEN, EXECUTOR_TOKEN]) {
      await put('/v1/executors', { executors: [{ agentId: 'agent', implementationVersion: 'v', token }] });
    }
    for (const to of [host, cut]) {
      await ask({ path: '/v1/executors', to });
      for (const key of [OLD_EXECUTOR_TOKEN, EXECUTOR_TOKEN])
        for (const path of ['/v1/actions', '/v1/me', '/v1/nowhere']) await ask({ path, as: withKey(key), to });
    }
    const { url } = host;
    const { headers } = withKey(EXECUTOR_TOKEN);
    const discovery = await SseReader.open(url, '/v1/executors/connect', { headers });
    for (const id of ['made', 'made', 'gone']) {
      const { key } = wire.keySaved.parse((await put(`/v1/tenant/keys/${id}`, {})).json);
      shownOnce.set(`a key made by the Host (${shownOnce.size})`, key ?? '');
    }
    const generated = await new AdminClient(host).createTenant();
    shownOnce.set('an application key made by the Host', generated.credentials.key);
    const signing = new SigningKey('k1');
    await put('/v1/tenant/issuers/people', registration([signing]));
    const token = signing.token(claims({ jti: planted('token') }));
    secrets.set('a token', token);
    secrets.set('the signature of a token', token.slice(token.lastIndexOf('.') + 1));
    for (const key of [token, MANAGEMENT_KEY, secrets.get('the studio key') ?? '', ...shownOnce.values()]) {
      for (const to of [host, cut]) await ask({ path: '/v1/me', as: withKey(key), to });
    }
    await ask({ path: '/v1/admin/status', headers: { authorization: `Bearer ${ADMIN_KEY}` } });
    await ask({ path: '/v1/tenant/audit', as: withKey(MANAGEMENT_KEY) });
    const last = [...shownOnce.values()][2] ?? '';
    const readers = [
      await tenant.events('room'),
      await withKey(last).events('room'),
      await withKey(token).request({ path: '/v1/sessions' }),
    ];
    const { turnId } = await tenant.message('room', 'hello');
    await tenant.turnEnd('room', turnId);
    await ask({ method: 'DELETE', path: '/v1/tenant/keys/gone' });
    await ask({ method: 'DELETE', path: '/v1/tenant/issuers/people' });
    expect((await ask({ method: 'DELETE', path: '/v1/executors/agent' })).status).toBe(200);
    await discovery.end();
    for (const reader of readers) if ('close' in reader) reader.close();
  });

  test('are sent to a provider of models that repeats all of it', async () => {
    const put = async (path: string, body: unknown): Promise<void> => {
      const answer = await ask({ method: 'PUT', path, body });
      expect(answer.status, answer.text).toBe(200);
    };
    const own = { provider: 'openai-compatible', model: 'm', baseUrl: model.baseUrl };
    const path = '/v1/tenant/model/credentials/openai-compatible';
    await put('/v1/tenant/model', { ...own, credential: { apiKey: OLD_MODEL_KEY } });
    await put(path, { apiKey: MODEL_KEY });
    await put('/v1/agents/real', { manifest: { instructions: 'i' } });
    for (const status of [400, 401, 403, 404, 429, 500]) {
      const session = `echo-${status}`;
      await ask({ method: 'PUT', path: `/v1/sessions/${session}`, body: { agentId: 'real' } });
      model.next({ echo: status });
      const { turnId } = await tenant.message(session, 'hello');
      const end = await tenant.turnEnd(session, turnId);
      expect(end.type).toBe(status === 429 || status === 500 ? 'turn.completed' : 'turn.failed');
      for (const part of ['items', 'calls/model']) await ask({ path: `/v1/sessions/${session}/${part}` });
    }
    expect(model.newest.headers.authorization).toBe(`Bearer ${MODEL_KEY}`);
    const paths = ['/v1/tenant/model', path, '/v1/tenant/model/catalog', '/v1/tenant'];
    for (const to of [host, cut]) for (const one of paths) await ask({ path: one, to });
    await ask({ path: '/v1/tenant/audit', as: withKey(MANAGEMENT_KEY) });
  });

  test('are kept in vaults', async () => {
    await keepInVaults({ ask: async (raw) => await ask(raw), secrets: VAULT_SECRETS, name: MARKER });
    const paths = ['/v1/vaults', '/v1/sessions/vaulted', '/v1/tenant/audit'];
    for (const to of [host, cut]) for (const path of paths) expect((await ask({ path, to })).status).toBe(200);
  });

  test('are sent with every kind of mistake', async () => {
    const expected: (readonly [number, Omit<RawRequest, 'path'> & { readonly path?: string }])[] = [
      [401, { headers: { authorization: `Basic ${BASIC}` } }],
      [401, { headers: { authorization: BASIC } }],
      [401, { headers: { authorization: `Bearer ${UNKNOWN_KEY}` } }],
      [401, { headers: { authorization: `Bearer ${UNKNOWN_KEY}.${UNKNOWN_KEY}.${UNKNOWN_KEY}` } }],
      [401, { headers: { authorization: `Bearer ${new SigningKey('x').token(claims({ jti: UNKNOWN_KEY }))}` } }],
      [401, { headers: { 'svc-tenant': HEADER } }],
      [403, { headers: { origin: `https://${URL_PASSWORD}@page.example` } }],
      [403, { headers: { authorization: `Bearer ${ADMIN_KEY}` } }],
      [426, { headers: { 'svc-protocol': HEADER } }],
      [400, { headers: { 'svc-subject': 'ann', 'svc-scopes': HEADER } }],
      [404, { path: `/nowhere?key=${QUERY}` }],
      [400, { path: `/v1/me?key=${QUERY}` }],
      [400, { path: `/v1/agents?cursor=${QUERY}` }],
      [400, { path: `/v1/agents/%zz?key=${QUERY}` }],
      [415, { method: 'PUT', path: '/v1/tenant/keys/k', body: HEADER, headers: { 'content-type': HEADER } }],
      [400, { method: 'PUT', path: '/v1/tenant/keys/k', body: `{"credentialHash":"${NO_HASH}` }],
      [400, { method: 'PUT', path: '/v1/tenant/keys/k', body: { credentialHash: NO_HASH } }],
      [400, { method: 'PUT', path: '/v1/tenant/keys/k', body: { role: NO_HASH } }],
      [400, { method: 'PUT', path: '/v1/executors', body: registering('agent', BAD_EXECUTOR_TOKEN) }],
      [400, { method: 'PUT', path: '/v1/executors', body: registering('no id', EXECUTOR_TOKEN) }],
      [404, { method: 'PUT', path: '/v1/executors', body: registering('absent', EXECUTOR_TOKEN) }],
      [409, { method: 'PUT', path: '/v1/executors', body: registering('agent', OWN_KEY) }],
      [401, { path: '/v1/actions', headers: { authorization: `Bearer ${EXECUTOR_TOKEN}` } }],
      [413, { method: 'PUT', path: '/v1/tenant/keys/k', body: { pad: NO_HASH.repeat(100_000) } }],
      [
        400,
        {
          method: 'PUT',
          path: '/v1/tenant/issuers/i',
          body: registration([], { jwks: { keys: [{ kty: 'OKP', d: PRIVATE_MEMBER }] } }),
        },
      ],
      [
        400,
        {
          method: 'PUT',
          path: '/v1/tenant/issuers/i',
          body: registration([], { jwks: { keys: [{ kty: 7, k: PRIVATE_MEMBER }] } }),
        },
      ],
      [
        400,
        {
          method: 'PUT',
          path: '/v1/tenant/issuers/i',
          body: withAddress(`https://name:${URL_PASSWORD}@issuer.example/`),
        },
      ],
      [400, { method: 'PUT', path: '/v1/tenant/issuers/i', body: withAddress(`ftp://${URL_PASSWORD}`) }],
      [400, modelWith({ credential: { apiKey: `${BAD_MODEL_KEY} with a blank` } })],
      [400, modelWith({ credential: { key: BAD_MODEL_KEY } })],
      [400, modelWith({ credential: BAD_MODEL_KEY })],
      [400, modelWith({ apiKey: BAD_MODEL_KEY })],
      [400, modelWith({ baseUrl: `https://name:${URL_PASSWORD}@models.example` })],
      [400, modelWith({ baseUrl: `https://models.example/?key=${URL_PASSWORD}` })],
      [400, modelWith({ provider: BAD_MODEL_KEY })],
      [409, modelWith({ baseUrl: 'https://elsewhere.example' })],
      [400, { method: 'PUT', path: `/v1/tenant/model/credentials/${BAD_MODEL_KEY}`, body: { apiKey: BAD_MODEL_KEY } }],
      [400, { method: 'PUT', path: '/v1/tenant/model/credentials/openai', body: `{"apiKey":"${BAD_MODEL_KEY}` }],
    ];
    for (const [status, raw] of expected) {
      const answer = await ask({ path: '/v1/me', ...raw });
      expect(answer.status, `${JSON.stringify(raw).slice(0, 200)} ${answer.text}`).toBe(status);
    }
    for (const bytes of [
      `${RAW}\r\n\r\n`,
      `GET /${RAW} HTTP/9\r\n\r\n`,
      `GET / HTTP/1.1\r\nauthorization ${RAW}\r\n\r\n`,
    ]) {
      expect(await spoken(host.url, bytes)).toMatch(/^HTTP\/1.1 400/);
    }
  });

  test('are in use while everything is away', { timeout: 360_000 }, async () => {
    const gone = await TcpProxy.start(1);
    const address = `http://127.0.0.1:${gone.port}/keys`;
    await gone[Symbol.asyncDispose]();
    await ask({ method: 'PUT', path: '/v1/tenant/issuers/away', body: withAddress(address) });
    const token = new SigningKey('away').token(claims({ jti: planted('token') }));
    secrets.set('a token whose issuer is away', token);
    expect((await ask({ path: '/v1/me', as: withKey(token) })).status).toBe(503);
    for (const proxy of [database, log]) {
      proxy.dropRequests();
      proxy.cutAll();
      await until('the node is not ready', async () => (await ask({ path: '/ready', to: cut })).status === 503);
      for (const as of [tenant, withKey(MANAGEMENT_KEY), withKey(UNKNOWN_KEY)]) {
        await ask({ path: '/v1/agents', as, to: cut });
        await ask({ path: '/v1/tenant', as, to: cut });
        await ask({
          method: 'PUT',
          path: '/v1/tenant/keys/away',
          body: { credentialHash: sha256(OWN_KEY + 'x') },
          as,
          to: cut,
        });
      }
      proxy.pass();
      proxy.cutAll();
      await until('the node is ready again', async () => (await ask({ path: '/ready', to: cut })).status === 200);
    }
    expect(answers.filter(({ status }) => status === 503).length).toBeGreaterThan(3);
  });

  test('that a Host cannot start with are not in what it says', { timeout: 240_000 }, async () => {
    const right = new URL(await host.file('database-url'));
    const wrong = new URL(right);
    wrong.password = URL_PASSWORD;
    const nats = new URL(await host.file('nats-url'));
    nats.password = URL_PASSWORD;
    const nowhere = `nats://name:${URL_PASSWORD}@127.0.0.1:1`;
    const urls = {
      ...{ NATS_URL: await host.file('nats-url'), DATABASE_URL: right.href },
      AGENT_HOST_KEK_FILE: join(host.dataDir, 'kek'),
    };
    const refusals = [
      { DATABASE_URL: wrong.href },
      { NATS_URL: nats.href },
      { NATS_URL: nowhere },
      { DATABASE_URL: `${URL_PASSWORD}://` },
    ];
    for (const env of refusals) {
      const all = { ...urls, AGENT_HOST_ADMIN_KEY: ADMIN_KEY, AGENT_HOST_LOG_LEVEL: 'trace', ...env };
      const failed = await startHost({ env: all }).then(
        () => '',
        (error: unknown) => String(error),
      );
      expect(failed).toContain('the Host did not start');
      outputs.push(failed);
    }
  });

  test('are nowhere afterwards: output, responses, metrics, arguments, files', { timeout: 240_000 }, async () => {
    for (const { metricsUrl } of [host, cut]) outputs.push((await send(metricsUrl, { path: '/metrics' })).text);
    const commands = await argumentsOf(directories);
    expect(commands.length).toBeGreaterThan(0);
    outputs.push(...commands);
    for (const name of SECRET_FILES) {
      const mode = await stat(join(host.dataDir, name)).then(
        ({ mode: bits }) => bits,
        () => 0o600,
      );
      expect(mode & 0o077, `${name} is for its account alone`).toBe(0);
    }
    await cut.stop();
    await host.stop();
    for (const node of [host, cut]) {
      // The helper keeps so many characters.
      expect(node.output().length).toBeLessThan(200_000);
      expect(node.output()).toContain('"level":');
      outputs.push(node.output());
    }
    const all = new Map([...secrets, ...shownOnce]);
    for (const [name, secret] of all) expect(secret.length, name).toBeGreaterThan(15);
    const found: string[] = [];
    for (const text of outputs) found.push(...holds(text, all).map((name) => `${name} in output`));
    for (const { status, text, headers } of answers) {
      found.push(...holds(text + JSON.stringify(headers), secrets).map((name) => `${name} in a response (${status})`));
    }
    const files = new Map<string, string>();
    const withIds: string[] = [];
    let bytes = 0;
    for (const directory of directories) {
      for await (const name of glob('**', { cwd: directory, exclude: (one) => SECRET_FILES.includes(one) })) {
        if (SECRET_FILES.includes(name)) continue;
        const content = await readFile(join(directory, name), 'latin1').catch(() => '');
        bytes += content.length;
        found.push(...holds(content, all).map((what) => `${what} in ${name}`));
        if (content.includes(MARKER)) files.set(name, MARKER);
        if (content.includes(tenant.tenantId)) withIds.push(name);
        if (content.includes(sha256(OWN_KEY))) files.set(`${name}#`, 'hash');
      }
    }
    process.stdout.write(
      `${outputs.join('').length} characters of output, ${answers.length} responses, ${bytes} bytes of files\n`,
    );
    expect(found).toEqual([]);
    // What the tenant wrote is sealed everywhere. Ids are not, so the search does find things.
    const names = [...files.keys()];
    expect(names.filter((name) => name.startsWith('nats/'))).toEqual([]);
    expect(names.filter((name) => name.startsWith('postgres/'))).toEqual([]);
    expect(withIds.filter((name) => name.startsWith('postgres/')).length, withIds.join(' ')).toBeGreaterThan(0);
  });
});

function registering(agentId: string, token: string) {
  return { executors: [{ agentId, token }] };
}

function withAddress(jwksUrl: string): Readonly<Record<string, unknown>> {
  return registration([], { jwks: undefined, jwksUrl });
}

function modelWith(members: Readonly<Record<string, unknown>>): RawRequest {
  const own = { provider: 'openai-compatible', model: 'm', baseUrl: 'https://models.example' };
  return { method: 'PUT', path: '/v1/tenant/model', body: { ...own, ...members } };
}
