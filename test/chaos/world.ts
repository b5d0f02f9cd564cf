import { randomUUID } from 'node:crypto';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import type { Cluster } from '../support/cluster/cluster.ts';
import { ExecutorClient, registerExecutor } from '../support/executor.ts';
import { until } from '../support/wait-until.ts';
import { openBoxSessions } from './boxes.ts';
import type { OwnedBox } from './boxes.ts';
import type { Pods } from './pods.ts';
import type { Provider } from './provider.ts';
import { TOOL_SERVER } from './tool-server.ts';
import type { ToolServer } from './tool-server.ts';

/** The tenant that all clients of a run work in, and its sessions; forks join them. */
export interface World {
  readonly tenant: TenantClient;
  readonly provider: Provider;
  readonly tools: ToolServer;
  readonly pods: Pods;
  /** Has the credential for the tool server. */
  readonly vaultId: string;
  readonly executorToken: string;
  readonly sessions: string[];
  readonly boxes: readonly OwnedBox[];
}

const TOOLS = [
  { name: 'work', inputSchema: { type: 'object' } },
  { name: 'careful', inputSchema: { type: 'object' }, approval: 'always' },
];
/** Far away: it is there so that every call is counted. */
export const TENANT_TOKENS = 1_000_000_000;
/** Near: turns pause at it until somebody raises it. */
export const SESSION_TOKENS = 2_000;
const BUDGETED_SESSIONS = 2;
const REMOTE_SESSIONS = 4;
const MCP_SESSIONS = 3;

/** Whether a session is answered by the provider outside, and not by the fixture. */
export function isRemote(sessionId: string): boolean {
  return sessionId.startsWith('remote/');
}

/** Whether the agent of a session has the tools of a server outside, and no others. */
export function hasServer(sessionId: string): boolean {
  return sessionId.startsWith('mcp/');
}

/** What the installation calls outside. The chaos touches nothing of it but pods. */
type Outside = Pick<World, 'provider' | 'tools' | 'pods'>;

export async function makeWorld(cluster: Cluster, sessionCount: number, outside: Outside): Promise<World> {
  const { provider, tools } = outside;
  const tenant = await new AdminClient(cluster).createTenant();
  await tenant.saveAgent('agent', { tools: TOOLS });
  const model = { provider: 'openai-compatible', model: 'outside', baseUrl: provider.baseUrl };
  const selected = await tenant.request({ method: 'PUT', path: '/v1/tenant/model', body: model });
  if (selected.status !== 200) throw new Error(`the model was not selected: ${selected.text}`);
  await tenant.saveAgent('remote', { model: undefined });
  const sessions = Array.from({ length: sessionCount }, (_, n) => `chaos/${n + 1}`);
  for (const id of sessions) await tenant.openSession(id);
  const remote = Array.from({ length: REMOTE_SESSIONS }, (_, n) => `remote/${n + 1}`);
  for (const id of remote) await tenant.openSession(id, { agentId: 'remote' });
  const { vaultId, sessions: ofServer } = await openServerSessions(tenant, tools);
  const boxed = await openBoxSessions(tenant);
  const ofSessions = sessions.slice(0, BUDGETED_SESSIONS).map((sessionId, n) => {
    return { id: `near-${n}`, scope: 'session', sessionId, period: 'total', limitTokens: SESSION_TOKENS };
  });
  const all = { id: 'all', scope: 'tenant', period: 'total', limitTokens: TENANT_TOKENS };
  const budgets = [all, ...ofSessions];
  const saved = await tenant.request({ method: 'PUT', path: '/v1/tenant/budgets', body: { budgets } });
  if (saved.status !== 200) throw new Error(`the budgets were not saved: ${saved.text}`);
  const executorToken = await registerExecutor(tenant);
  const executor = new ExecutorClient(tenant, executorToken);
  for (const { url, role } of cluster.nodes) {
    if (role !== 'reads') continue;
    const isKnown = async (): Promise<boolean> =>
      (await executor.at({ url }).tenant.request({ path: '/v1/actions' })).status === 200;
    await until(`${url} knows the executor`, isKnown);
  }
  const every = [...sessions, ...remote, ...ofServer, ...boxed.ids];
  return { tenant, ...outside, vaultId, executorToken, sessions: every, boxes: boxed.boxes };
}

/** Sessions whose agent calls the tool server, with the credential of a vault. */
async function openServerSessions(
  tenant: TenantClient,
  tools: ToolServer,
): Promise<Pick<World, 'vaultId' | 'sessions'>> {
  const post = async (path: string, body: object): Promise<string> => {
    const ids = { requestId: 'made', idempotencyKey: randomUUID() };
    const answer = await tenant.request({ method: 'POST', path, body: { ...ids, ...body } });
    if (answer.status !== 201) throw new Error(`${path}: ${answer.text}`);
    return String(Reflect.get(Object(answer.json), 'id'));
  };
  const vaultId = await post('/v1/vaults', { name: 'Ann', subject: 'ann' });
  await post(`/v1/vaults/${vaultId}/credentials`, { name: 'Tools', auth: tools.credential });
  await tenant.saveAgent('mcp', { mcpServers: [{ name: TOOL_SERVER, url: tools.url }] });
  const sessions = Array.from({ length: MCP_SESSIONS }, (_, n) => `mcp/${n + 1}`);
  for (const id of sessions) await tenant.openSession(id, { agentId: 'mcp', vaultIds: [vaultId] });
  return { vaultId, sessions };
}
