import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { glob, readFile, stat } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import * as wire from '#src/http/wire/schemas.ts';
import { shaped } from '../conformance/http/target.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { freePort } from '../support/free-port.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { KubernetesTestServer, NAMESPACE, TOKEN } from '../support/kubernetes-api.ts';
import { hasBubblewrap } from '../support/kubernetes-container.ts';
import { applyPolicies, engineAt } from '../support/kubernetes-policies.ts';
import { holds, planted } from '../support/planted.ts';
import { ASK } from '../support/pod-asks.ts';
import { until } from '../support/wait-until.ts';

const TURN_MS = 120_000;
const SECRET = planted('cluster-secret');
const result = z.object({ kind: z.literal('completed'), output: z.looseObject({ stdout: z.string() }) });

/** A server that repeats what it is sent, its credential too. */
class Repeating {
  readonly seen: (readonly [string, string | undefined])[] = [];
  readonly #server: Server = createServer((request, response) => {
    const { authorization } = request.headers;
    this.seen.push([request.url ?? '', authorization]);
    response.end(`got ${authorization ?? 'nothing'} at ${request.url}`);
  });

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', () => resolve()));
  }

  get at(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
  }
}

/** Hosts whose pods are in a cluster, with all that is between a command and the server that it may reach. */
describe.runIf(hasBubblewrap())('the network of pods in a cluster', () => {
  const [allowed, other] = [new Repeating(), new Repeating()];
  const account = mkdtempSync(join(tmpdir(), 'agent-host-account-'));
  let cluster: KubernetesTestServer;
  let host: Host;
  let tenant: TenantClient;
  let vaultIds: readonly string[];

  const environment = async (): Promise<Readonly<Record<string, string>>> => {
    const port = await freePort();
    engineAt(cluster, port);
    return {
      ...{ AGENT_HOST_PODS: 'kubernetes', AGENT_HOST_KUBERNETES_URL: cluster.url },
      ...{ AGENT_HOST_KUBERNETES_NAMESPACE: NAMESPACE, AGENT_HOST_KUBERNETES_TOKEN_FILE: join(account, 'token') },
      ...{ AGENT_HOST_KUBERNETES_CA_FILE: join(account, 'ca'), AGENT_HOST_POD_PROXY_LISTEN: `127.0.0.1:${port}` },
      ...{ AGENT_HOST_LEASE_SECONDS: '3', AGENT_HOST_PROCESSES: '1' },
    };
  };

  beforeAll(async () => {
    await Promise.all([allowed.listen(), other.listen()]);
    cluster = await KubernetesTestServer.open({ way: 'bubblewrap' });
    applyPolicies(cluster);
    writeFileSync(join(account, 'token'), TOKEN);
    writeFileSync(join(account, 'ca'), cluster.ca);
    host = await startHost({ env: await environment() });
    tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent('surfer', { sandboxTools: ['bash'] });
    vaultIds = [await vault()];
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await cluster[Symbol.asyncDispose]();
    for (const server of [allowed, other]) server.close();
    rmSync(account, { recursive: true });
  });

  async function vault(): Promise<string> {
    const post = async (path: string, body: object): Promise<unknown> => {
      const answer = await tenant.request({ method: 'POST', path, body: { requestId: 'r', ...body } });
      expect(answer.status, answer.text).toBe(201);
      return answer.json;
    };
    const made = await post('/v1/vaults', { idempotencyKey: 'v', name: 'keys', subject: 'ann' });
    const { id } = z.looseObject({ id: z.string() }).parse(made);
    const auth = { type: 'bearer', url: `http://${allowed.at}/api`, token: SECRET };
    await post(`/v1/vaults/${id}/credentials`, { idempotencyKey: 'c', name: 'key', auth });
    return id;
  }

  async function opened(sessionId: string): Promise<string> {
    const allow = [allowed.at, '10.1.2.3', '169.254.169.254', '*.example.invalid'];
    const sandbox = { kind: 'pod', spec: { network: { allow } } };
    const { sandboxId } = await tenant.openSession(sessionId, { agentId: 'surfer', sandbox, vaultIds });
    return sandboxId ?? '';
  }

  const bash = (command: string) => [
    { toolCalls: [{ name: 'bash', input: { command: `${ASK}\n${command}`, timeoutSeconds: 120 } }] },
    { text: 'done' },
  ];

  async function ended(sessionId: string, turnId: string | null): Promise<readonly unknown[]> {
    expect(await tenant.turnEnd(sessionId, turnId, TURN_MS)).toMatchObject({ type: 'turn.completed' });
    const items = (await tenant.items(sessionId)).filter((item) => item.turnId === turnId);
    return items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));
  }

  async function played(sessionId: string, command: string): Promise<string> {
    const { turnId } = await tenant.play(sessionId, bash(command));
    const [outcome] = await ended(sessionId, turnId);
    return result.parse(outcome).output.stdout;
  }

  test('leads to what its spec allows, with a credential that no pod has', async () => {
    await opened('one');
    const said = await played(
      'one',
      [
        `{ ask POST http://${allowed.at}/api/x; ask GET http://${allowed.at}/else; dial ${allowed.at}`,
        `ask GET http://${other.at}/; dial ${other.at}; dial 10.1.2.3:443; dial localhost:443`,
        'ask GET http://10.1.2.3/; ask GET http://169.254.169.254/latest/; ask GET http://api.example.invalid/',
        `(exec 4<>/dev/tcp/${allowed.at.replace(':', '/')}) || echo no way around; env; } > out 2>&1; cat out`,
      ].join('\n'),
    );
    expect(said).toContain('got Bearer [redacted] at /api/x');
    expect(said).toContain('got nothing at /else');
    expect(said.match(/^HTTP\/1\.1 200 Connection established/gm)).toHaveLength(1);
    expect(said).toContain(`${other.at} is not in network.allow of the sandbox`);
    for (const name of ['10.1.2.3', '169.254.169.254', 'api.example.invalid'])
      expect(said).toContain(`this Host does not call ${name}`);
    expect(said.match(/^HTTP\/1\.1 403 Forbidden/gm)).toHaveLength(7);
    expect(said).toContain('no way around');
    expect(allowed.seen).toEqual([
      ['/api/x', `Bearer ${SECRET}`],
      ['/else', undefined],
    ]);
    expect(other.seen).toEqual([]);

    const trail = await tenant.request({ path: '/v1/tenant/audit?limit=200' });
    const uses = shaped(trail, 200, wire.auditTrail).entries.filter(({ action }) => action === 'credential.used');
    expect(uses.map(({ details }) => [details['purpose'], details['url']])).toEqual([
      ['sandbox', `http://${allowed.at}/api/x`],
    ]);
    const texts = [said, trail.text, host.output(), JSON.stringify(await tenant.items('one')), ...(await ofCluster())];
    expect(texts.length).toBeGreaterThan(10);
    for (const text of texts) expect(holds(text, new Map([['secret', SECRET]]))).toEqual([]);
  });

  /** All that there is of pods: objects, and each file of a volume or a container. */
  async function ofCluster(): Promise<string[]> {
    const objects = ['sandboxes', 'pods', 'persistentvolumeclaims'].flatMap((name) => cluster.store.all(name));
    const texts = [...objects.map((object) => JSON.stringify(object)), ...cluster.requests];
    for await (const name of glob('**', { cwd: cluster.cluster.directory })) {
      const path = join(cluster.cluster.directory, name);
      if ((await stat(path).catch(() => null))?.isFile() === true) texts.push(await readFile(path, 'latin1'));
    }
    return texts;
  }

  test('dies with the node that ran the command, and is there for the next', async () => {
    const sandboxId = await opened('two');
    const file = async (name: string) =>
      (await tenant.request({ path: `/v1/sandboxes/${sandboxId}/files/${name}` })).text;
    expect(await played('two', `ask GET http://${allowed.at}/before`)).toContain('at /before');
    const victim = await startHost({ join: host, env: await environment() });
    try {
      // Another pod, which is let out to both.
      const stopped = await tenant.request({ method: 'POST', path: `/v1/sandboxes/${sandboxId}/stop` });
      expect(stopped.status, stopped.text).toBe(200);
      const loop = `echo "$HTTP_PROXY" > proxy; while :; do ask GET http://${allowed.at}/during; sleep 0.2; done`;
      const { turnId } = await tenant.at(victim).play('two', bash(loop));
      await until('it has a network', () => allowed.seen.some(([path]) => path === '/during'), TURN_MS);
      await victim.kill();
      expect(await ended('two', turnId)).toMatchObject([{ kind: 'failed', code: 'sandbox_lost' }]);
      const stolen = (await file('proxy')).trim();
      expect(stolen).toContain('@127.0.0.1:');
      const before = allowed.seen.length;
      // The old credential at the node that took over; then its own.
      const at = `\${HTTP_PROXY##*@}`;
      const said = await played(
        'two',
        `use "${stolen.replace(/@.*/, '')}@${at}"; ask GET http://${allowed.at}/stolen; use "$HTTP_PROXY"; ask GET http://${allowed.at}/after`,
      );
      expect(said).toMatch(/^HTTP\/1\.1 407 [^]*at \/after/);
      expect(allowed.seen.slice(before).map(([path]) => path)).toEqual(['/after']);
    } finally {
      await victim[Symbol.asyncDispose]();
    }
  });
});
