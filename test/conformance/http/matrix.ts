import { createHmac } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import * as artifacts from '#src/http/wire/artifacts.ts';
import * as sandboxes from '#src/http/wire/sandboxes.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { send } from '../../support/client.ts';
import type { Answer, TenantClient } from '../../support/client.ts';
import { claims, registration, SigningKey } from '../../support/tokens.ts';
import { keyCases, tokenCases } from './credentials.ts';
import type { CredentialCase, CredentialWorld, Outcome } from './credentials.ts';
import { executorReach, makeExecutors } from './executor-reach.ts';
import { MATRIX, SCOPES } from './matrix-rows.ts';
import type { MatrixRow } from './matrix-rows.ts';
import { ROUTES } from './routes.ts';
import { newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** A session of the subject ann, on the agent `agent`. */
const ROOM = 'anns-room';
/** A sandbox of the same subject. */
const BOX = 'anns-box';

/** Every operation of the document with every kind of credential. */
export function matrixSuite(target: () => HttpTarget): void {
  let world: CredentialWorld;
  const url = (): string => target().nodes[0].url;

  beforeAll(async () => {
    world = await makeWorld(target());
  });

  /** Rightly called, but for the credential. */
  async function call(
    operation: string,
    headers: CredentialCase['headers'],
    { query = '', session = ROOM, artifact = world.artifactId, sandbox = BOX, body }: CallOptions = {},
  ): Promise<Answer> {
    const [method = '', template = ''] = operation.split(' ');
    const own = { sessionId: session, artifactId: artifact, sandboxId: sandbox };
    const ids = { ...own, agentId: 'agent', token: world.linkToken };
    const params = { ...ROUTES[operation]?.params, ...ids };
    const path = template.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
      encodeURIComponent(Object.entries(params).find(([known]) => known === name)?.[1] ?? ''),
    );
    const sent = Object.entries({ ...world.tenant.headers, 'x-request-id': 'same', ...headers });
    return await send(url(), {
      method,
      path: `${path}${query.replace('{sessionId}', encodeURIComponent(session))}`,
      headers: Object.fromEntries(sent.filter(([, value]) => value !== undefined)),
      ...(body === undefined ? {} : { body }),
    });
  }

  async function checkCases(operation: string, row: MatrixRow, cases: readonly CredentialCase[]): Promise<void> {
    const invalid = new Set<string>();
    const [body] = bodiesOf(operation, row);
    for (const { name, headers, outcome } of cases) {
      // What lets the request through meets a query that no route takes: nothing is done, and nothing is revealed before.
      const answer = await call(operation, headers, row.realm === 'open' ? {} : { query: '?nope=1', body });
      const wanted = outcome(row);
      const told = `${operation} with ${name}: ${answer.status} ${answer.text}`;
      expect(outcomeOf(answer), told).toEqual(wanted);
      if (wanted === 'passes') continue;
      refused(answer, wanted.status, wanted.code);
      if (wanted.code === 'credential_invalid') invalid.add(answer.text);
    }
    expect(invalid.size, 'all that is invalid is refused with the same bytes').toBeLessThanOrEqual(1);
  }

  test('the table has a row for every operation of the document, and no other', async () => {
    const { json } = await send(url(), { path: '/openapi.json' });
    const { paths } = z.object({ paths: z.record(z.string(), z.record(z.string(), z.unknown())) }).parse(json);
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(Object.keys(MATRIX).toSorted()).toEqual(operations.toSorted());
  });

  describe.each(Object.entries(MATRIX))('%s', (operation, row) => {
    test('keys of every kind', async () => {
      await checkCases(operation, row, keyCases(world));
      expect(row.kinds.length > 0 || row.realm === 'open').toBe(true);
    });

    test('tokens, good and forged', async () => {
      await checkCases(operation, row, tokenCases(world));
      expect(row.kinds.includes('token') || row.kinds.includes('executor') || row.realm !== 'tenant').toBe(true);
    });

    test('an Origin is refused whatever the credential', async () => {
      for (const { name, headers } of [...keyCases(world), ...tokenCases(world)]) {
        const answer = await call(operation, { ...headers, origin: 'https://page.example' });
        expect(answer.json, name).toMatchObject({ status: 'rejected', code: 'origin_rejected' });
        expect(answer.status).toBe(403);
      }
    });

    // Grants of sandboxes have a test of their own: most issuers have no claim for them.
    if (row.reaches !== undefined && row.reaches !== 'sandbox') grants(operation, row);
    if (row.reaches !== undefined && row.reaches !== 'agent' && row.scopes.length > 0) foreignSubject(operation, row);
  });

  const tokenOf = (over: Readonly<Record<string, unknown>>): CredentialCase['headers'] => ({
    authorization: `Bearer ${world.signing.token(claims({ scope: SCOPES.join(' '), ...over }))}`,
    'svc-tenant': world.tenant.tenantId,
  });

  /** Grants of agents are what `agents` of the token says where the issuer has a claim for them. */
  function grants(operation: string, row: MatrixRow): void {
    test('a token whose grants do not reach the agent', async () => {
      for (const body of bodiesOf(operation, row)) {
        // Parts that name files are looked up before the session.
        if (JSON.stringify(body ?? '').includes('artifactId')) continue;
        for (const agents of [[], ['other'], 'other others', ['agents', 'agent/1', 'AGENT']]) {
          const answer = await call(operation, tokenOf({ agents }), { body, query: row.query ?? '' });
          const isAction = JSON.stringify(body ?? '').includes('action_result');
          refused(answer, 403, isAction ? 'key_role_mismatch' : 'not_granted');
        }
      }
      if (row.reaches !== 'agent') return;
      // Whether the agent exists is not told either.
      const [method = '', template = ''] = operation.split(' ');
      const path = template.replace('{agentId}', 'absent').replace('{version}', '1');
      const [body] = bodiesOf(operation, row);
      const raw = { method, path, ...(body === undefined ? {} : { body }) };
      const headers = { 'svc-protocol': '8', ...tokenOf({ agents: ['other'] }) };
      const absent = refused(await send(url(), { ...raw, headers }), 403, 'not_granted');
      expect(absent.details).toBeUndefined();
    });
  }

  function foreignSubject(operation: string, row: MatrixRow): void {
    test("another subject's session, artifact or sandbox is as one that is not there", async () => {
      for (const body of bodiesOf(operation, row)) {
        if (JSON.stringify(body ?? '').includes('action_result')) continue;
        const ben = [
          { ...keyHeaders(world.tenant), 'svc-subject': 'ben', 'svc-scopes': SCOPES.join(' ') },
          tokenOf({ sub: 'ben', agents: '*' }),
        ];
        for (const headers of ben) {
          const query = row.query ?? '';
          const foreign = await call(operation, headers, { body, query });
          expect(refused(foreign, 404, 'not_found').message).toMatch(/^No such (session|artifact|sandbox)\.$/);
          // A PUT makes what is not there, so there is nothing to compare it with.
          if (operation.startsWith('PUT')) continue;
          const nothing = { session: 'absent', artifact: 'af_absent', sandbox: 'absent' };
          const absent = await call(operation, headers, { body, query, ...nothing });
          expect(foreign.text).toBe(absent.text);
        }
      }
      expect((await world.tenant.session(ROOM)).subject).toBe('ann');
    });
  }

  executorReach(() => ({ world, url: url() }));

  describe('what is in no document', () => {
    test('an Origin is refused before anything else', async () => {
      const operations = [
        'GET /openapi.json',
        'GET /docs',
        'GET /nowhere',
        'POST /v1/me',
        'GET /v1/sessions/%zz',
        'OPTIONS /v1/me',
        'GET //',
      ];
      for (const operation of operations) {
        for (const origin of ['https://page.example', 'null', '', 'http://127.0.0.1']) {
          for (const authorization of [undefined, 'Bearer unknown', `Bearer ${world.tenant.credentials.key}`]) {
            const answer = await call(operation, { authorization, origin });
            expect(refused(answer, 403, 'origin_rejected').details).toBeUndefined();
          }
        }
      }
    });
  });

  describe('who one is, by each kind of credential', () => {
    const me = async (headers: CredentialCase['headers']) => shaped(await call('GET /v1/me', headers), 200, wire.me);

    test('keys', async () => {
      const { tenant, studioKey, managementKey } = world;
      const own = keyHeaders(tenant);
      expect((await me(own)).via).toBe('application:app');
      const studio = await me({ ...own, authorization: `Bearer ${studioKey}` });
      expect(studio).toEqual({ scopes: SCOPES, agents: '*', via: 'application:studio' });
      const management = await me({ ...own, authorization: `Bearer ${managementKey}` });
      expect(management).toEqual({ scopes: [], agents: [], via: 'management:ops' });
      const person = { 'svc-subject': 'ann', 'svc-scopes': 'vaults:own' };
      const told = { subject: 'ann', scopes: ['vaults:own'], agents: '*', via: 'subject' };
      expect(await me({ ...own, ...person })).toEqual(told);
      expect(await me({ ...own, ...person, authorization: `Bearer ${studioKey}` })).toEqual(told);
    });

    test('tokens, at the edges of what is good', async () => {
      const now = Math.floor(Date.now() / 1_000);
      const fine = [
        { iat: now + 20, exp: now + 320 },
        { iat: now - 300, exp: now - 20 },
        { exp: now + 3_600 },
        { aud: ['another', 'the-host'] },
        { nbf: now + 20 },
        { pad: 'x'.repeat(11_000) },
      ];
      for (const over of fine) {
        expect(await me(tokenOf({ agents: ['agent'], ...over }))).toEqual({
          subject: 'ann',
          scopes: SCOPES,
          agents: ['agent'],
          via: 'issuer:people',
        });
      }
    });
  });
}

interface CallOptions {
  readonly query?: string;
  readonly session?: string;
  readonly artifact?: string;
  readonly sandbox?: string;
  readonly body?: unknown;
}

const scopesIn = z.strictObject({ scopes: z.array(z.string()) });

/** What the gate has said. Behind it only the wrong query is complained of. */
function outcomeOf({ status, json, text }: Answer): Outcome {
  if (status === 200 || (status === 400 && text.includes('nope'))) return 'passes';
  const { code, details } = wire.problem.parse(json);
  return details === undefined ? { status, code } : { status, code, ...scopesIn.parse(details) };
}

/** Right ones, one of each kind. */
function bodiesOf(operation: string, { body }: MatrixRow): readonly unknown[] {
  return body === undefined ? (ROUTES[operation]?.bodies?.map(({ whole }) => whole) ?? [undefined]) : [body];
}

function keyHeaders({ credentials: { key, tenantId } }: TenantClient): CredentialCase['headers'] {
  return { authorization: `Bearer ${key}`, 'svc-tenant': tenantId };
}

async function makeWorld(target: HttpTarget): Promise<CredentialWorld> {
  const [tenant, foreign] = [await newTenant(target), await newTenant(target)];
  await tenant.openSession(ROOM, { subject: 'ann' });
  const put = async (path: string, body: unknown): Promise<Answer> =>
    await tenant.request({ method: 'PUT', path, body });
  const management = shaped(await put('/v1/tenant/keys/ops', { role: 'management' }), 200, wire.keySaved);
  const signing = new SigningKey('k1');
  shaped(await put('/v1/tenant/issuers/people', registration([signing], { agentsClaim: 'agents' })), 200, wire.issuer);
  const upload = { method: 'POST', path: '/v1/artifacts?name=a&sessionId=anns-files', body: Buffer.from('bytes') };
  await tenant.openSession('anns-files', { subject: 'ann' });
  const { artifactId } = shaped(await tenant.request(upload), 201, artifacts.uploaded).artifact;
  const ann = { 'svc-subject': 'ann', 'svc-scopes': 'sandboxes:write' };
  const box = { method: 'PUT', path: `/v1/sandboxes/${BOX}`, body: {}, headers: ann };
  shaped(await tenant.request(box), 200, sandboxes.sandbox);
  const link = { method: 'POST', path: `/v1/artifacts/${artifactId}/links`, body: { expiresIn: 900 } };
  const { path: linkPath } = shaped(await tenant.request(link), 201, artifacts.link);
  return {
    artifactId,
    linkToken: linkPath.slice(linkPath.lastIndexOf('/') + 1),
    tenant,
    foreign,
    adminKey: target.adminKey,
    studioKey: createHmac('sha256', target.adminKey).update(`studio\0${tenant.tenantId}`).digest('hex'),
    managementKey: management.key ?? '',
    executors: await makeExecutors(tenant, foreign),
    signing,
  };
}
