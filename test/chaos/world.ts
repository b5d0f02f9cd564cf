import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import type { Cluster } from '../support/cluster/cluster.ts';
import { ExecutorClient, registerExecutor } from '../support/executor.ts';
import { until } from '../support/wait-until.ts';
import type { Provider } from './provider.ts';

/** The tenant that all clients of a run work in, and its sessions; forks join them. */
export interface World {
  readonly tenant: TenantClient;
  readonly provider: Provider;
  readonly executorToken: string;
  readonly sessions: string[];
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

/** Whether a session is answered by the provider outside, and not by the fixture. */
export function isRemote(sessionId: string): boolean {
  return sessionId.startsWith('remote/');
}

export async function makeWorld(cluster: Cluster, sessionCount: number, provider: Provider): Promise<World> {
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
  return { tenant, provider, executorToken, sessions: [...sessions, ...remote] };
}
