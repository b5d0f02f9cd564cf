import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { AuthServer } from '../support/auth-server.ts';
import type { TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { guarded, ScriptedServer } from '../support/mcp-servers.ts';
import { until } from '../support/wait-until.ts';
import { fresh, newTenant } from '../conformance/http/target.ts';

/**
 * Turns that wait for a person to sign in, and continue when that has happened. One node has the servers and takes commands; only
 * the other one runs turns.
 */

const TURN_MS = 120_000;
const REDIRECT = 'https://app.example/back';
const env = { AGENT_HOST_EGRESS: 'loopback' };
const hosts: Host[] = [];
let first: Host;
let engine: Host;
let auth: AuthServer;
let server: ScriptedServer;
let tenant: TenantClient;
let vaultId: string;
let agentId: string;

beforeAll(async () => {
  first = await startHost({ env: { ...env, AGENT_HOST_ROLES: 'commands,reads,projector' } });
  hosts.push(first);
  engine = await startHost({ join: first, env });
  hosts.push(engine);
});

afterAll(async () => {
  for (const host of hosts.toReversed()) await host[Symbol.asyncDispose]();
});

beforeEach(async () => {
  [auth, server] = [await AuthServer.start(), await ScriptedServer.start()];
  auth.resource = (request, response) => server.handle(request, response);
  guarded(server, () => auth.accessToken);
  tenant = await newTenant({ adminKey: first.adminKey, nodes: [first, engine] });
  agentId = await tenant.saveAgent(fresh('agent'), { mcpServers: [{ name: 'docs', url: `${auth.origin}/mcp` }] });
  vaultId = await vaultOf('ann');
});

afterEach(async () => {
  await server[Symbol.asyncDispose]();
  await auth[Symbol.asyncDispose]();
});

const made = z.looseObject({ id: z.string() });
const inbox = z.looseObject({ interactions: z.array(z.looseObject({ interactionId: z.string() })) });

async function post(path: string, body: object, of = tenant): Promise<unknown> {
  const ids = { requestId: 'r', idempotencyKey: randomUUID() };
  const answer = await of.request({ method: 'POST', path, body: { ...ids, ...body } });
  expect(answer.status, answer.text).toBeLessThan(300);
  return answer.json;
}

async function vaultOf(subject: string): Promise<string> {
  return made.parse(await post('/v1/vaults', { name: 'v', subject })).id;
}

/** Saves a credential for the server, and returns its address. */
async function saved(vault: string, more: object = { type: 'oauth' }): Promise<string> {
  const path = `/v1/vaults/${vault}/credentials`;
  const auths = { url: `${auth.origin}/mcp`, ...more };
  return `${path}/${made.parse(await post(path, { name: 'n', auth: auths })).id}`;
}

/** A turn that has come to wait for the credential of a vault. */
async function waiting(vault: string): Promise<{ id: string; turnId: string; interactionId: string }> {
  const id = fresh('s');
  await tenant.openSession(id, { agentId, vaultIds: [vault] });
  const { turnId } = await tenant.play(id, [{ toolCalls: [{ name: 'docs_act', input: {} }] }, { text: 'done' }]);
  const wait = await until('it waits', async () => (await paused(id)) ?? false, TURN_MS);
  return { id, turnId: turnId ?? '', interactionId: wait.id };
}

async function paused(id: string) {
  const { status, waits } = await tenant.session(id);
  return status === 'paused' ? waits[0] : undefined;
}

/** The person consents in the browser. Returns what it brings back. */
async function consented(credential: string): Promise<object> {
  const begun = z
    .looseObject({ url: z.string() })
    .parse(
      (await tenant.request({ method: 'POST', path: `${credential}/authorize`, body: { redirectUri: REDIRECT } })).json,
    );
  return { ...auth.consent(begun.url), iss: auth.origin };
}

async function complete(credential: string, body: object, of = tenant): Promise<number> {
  return (await of.request({ method: 'POST', path: `${credential}/complete`, body })).status;
}

async function ended(turn: { id: string; turnId: string }): Promise<string> {
  return (await tenant.turnEnd(turn.id, turn.turnId, TURN_MS)).type;
}

test('one sign-in continues every turn that waits for it, and none that waits for another vault', async () => {
  const mine = await saved(vaultId);
  const bens = await vaultOf('ben');
  await saved(bens);
  const [one, two, other] = [await waiting(vaultId), await waiting(vaultId), await waiting(bens)];
  expect(await paused(one.id)).toMatchObject({ server: 'docs', credentialId: mine.split('/').at(-1) });
  expect(await complete(mine, await consented(mine))).toBe(200);
  expect(await Promise.all([ended(one), ended(two)])).toEqual(['turn.completed', 'turn.completed']);
  expect(server.carriedOut).toBe(2);
  expect(await paused(other.id)).toMatchObject({ id: other.interactionId });
  await until('only one is asked', async () => {
    const { interactions } = inbox.parse((await tenant.request({ path: '/v1/interactions' })).json);
    return interactions.length === 1 && interactions[0]?.interactionId === other.interactionId;
  });
});

test('another token in place of a bearer token that the server refuses does, too', async () => {
  const credential = await saved(vaultId, { type: 'bearer', token: 'refused' });
  const turn = await waiting(vaultId);
  await post(credential, { auth: { type: 'bearer', url: `${auth.origin}/mcp`, token: 'refused-too' } });
  const again = await until('it waits again', async () => {
    const wait = await paused(turn.id);
    return wait !== undefined && wait.id !== turn.interactionId && wait;
  });
  expect(again).toMatchObject({ server: 'docs' });
  await post(credential, { auth: { type: 'bearer', url: `${auth.origin}/mcp`, token: auth.accessToken } });
  expect(await ended(turn)).toBe('turn.completed');
  expect(server.carriedOut).toBe(1);
});

test('a sign-in and an answer at the same moment make one call', async () => {
  const credential = await saved(vaultId);
  const turn = await waiting(vaultId);
  const back = await consented(credential);
  const { interactionId } = turn;
  const there = tenant.at(engine);
  const [status, answer] = await Promise.all([
    complete(credential, back),
    there.command(turn.id, { type: 'respond', interactionId, value: 'done' }),
  ]);
  expect(status).toBe(200);
  expect([202, 409]).toContain(answer.status);
  expect(await ended(turn)).toBe('turn.completed');
  expect(server.carriedOut).toBe(1);
});

test('a sign-in of a node that is killed right after recording it continues the turn at another', async () => {
  const credential = await saved(vaultId);
  server.tools = [{ name: 'act', inputSchema: { type: 'object' }, annotations: { readOnlyHint: true } }];
  await engine.restart({ AGENT_HOST_FAULT_POINTS: 'sign-in.recorded=kill' });
  const turn = await waiting(vaultId);
  const back = await consented(credential);
  // It is also the only node that watches, until the next one has taken over.
  await expect(complete(credential, back, tenant.at(engine))).rejects.toThrow(credential);
  await until('it is gone', () => !isRunning(engine));
  hosts.push(await startHost({ join: first, env }));
  expect(await ended(turn)).toBe('turn.completed');
});
