import type { Json } from './route-row.ts';

/** Who may use each route, written down here a second time, and not derived from the code's own table. */

export type Kind = 'admin' | 'application' | 'studio' | 'management' | 'token' | 'executor';
export const SCOPES = ['agents:read', 'agents:write', 'sessions:own', 'sandboxes:write', 'vaults:own'] as const;
export type Scope = (typeof SCOPES)[number];

export interface MatrixRow {
  readonly realm: 'open' | 'admin' | 'tenant';
  /** Kinds of credential that get past the question of the role. */
  readonly kinds: readonly Kind[];
  /** Any one of them lets a subject in; empty: no subject may use the route; `any`: every subject may. */
  readonly scopes: readonly Scope[] | 'any';
  /** What the path, the query or the body names: a token's grants must reach it, and a subject sees its own only. */
  readonly reaches?: 'agent' | 'session' | 'artifact' | 'sandbox';
  /** What a right call has in its query; `{sessionId}` is replaced. */
  readonly query?: string;
  /** Called with this instead of what the table of bad input has. */
  readonly body?: Json;
}

const open: MatrixRow = { realm: 'open', kinds: [], scopes: 'any' };
const admin: MatrixRow = { realm: 'admin', kinds: ['admin'], scopes: [] };
const everyKey = ['application', 'studio', 'management', 'token'] as const;
const tenant: MatrixRow = { realm: 'tenant', kinds: everyKey, scopes: [] };
const readAgents: MatrixRow = { realm: 'tenant', kinds: everyKey, scopes: ['agents:read', 'agents:write'] };
const writeAgents: MatrixRow = { realm: 'tenant', kinds: everyKey, scopes: ['agents:write'] };
const sessions: MatrixRow = { realm: 'tenant', kinds: ['application', 'studio', 'token'], scopes: ['sessions:own'] };
const oneArtifact: MatrixRow = { ...sessions, reaches: 'artifact' };
const oneSession: MatrixRow = { ...sessions, reaches: 'session' };
/** Another person's vault: vaults.ts of this directory. */
const vaults: MatrixRow = { realm: 'tenant', kinds: ['application', 'studio', 'token'], scopes: ['vaults:own'] };
const readSandboxes: MatrixRow = { ...sessions, scopes: ['sessions:own', 'sandboxes:write'] };
const oneSandbox: MatrixRow = { ...readSandboxes, reaches: 'sandbox' };
const changeSandbox: MatrixRow = { ...sessions, scopes: ['sandboxes:write'], reaches: 'sandbox' };
const executorWork: MatrixRow = { realm: 'tenant', kinds: ['executor'], scopes: [] };

export const MATRIX: Readonly<Record<string, MatrixRow>> = {
  'GET /health': open,
  'GET /ready': open,
  'GET /v1/me': { ...tenant, scopes: 'any' },
  'POST /v1/admin/tenants': admin,
  'GET /v1/admin/tenants': admin,
  'GET /v1/admin/tenants/{tenantId}': admin,
  'DELETE /v1/admin/tenants/{tenantId}': admin,
  'GET /v1/admin/status': admin,
  'POST /v1/admin/host/shutdown': admin,
  'GET /v1/tenant': tenant,
  'PUT /v1/tenant/config/seed': tenant,
  'GET /v1/tenant/model': tenant,
  'PUT /v1/tenant/model': tenant,
  'PUT /v1/tenant/model/selection': tenant,
  'GET /v1/tenant/model/catalog': tenant,
  'GET /v1/tenant/model/prices': tenant,
  'PUT /v1/tenant/model/prices': tenant,
  'GET /v1/tenant/model/credentials/{provider}': tenant,
  'PUT /v1/tenant/model/credentials/{provider}': tenant,
  'DELETE /v1/tenant/model/credentials/{provider}': tenant,
  'GET /v1/tenant/audit': tenant,
  'GET /v1/tenant/keys': tenant,
  'PUT /v1/tenant/keys/{keyId}': tenant,
  'DELETE /v1/tenant/keys/{keyId}': tenant,
  'GET /v1/tenant/issuers': tenant,
  'PUT /v1/tenant/issuers/{name}': tenant,
  'GET /v1/tenant/issuers/{name}': tenant,
  'DELETE /v1/tenant/issuers/{name}': tenant,
  'GET /v1/tenant/budgets': tenant,
  'PUT /v1/tenant/budgets': tenant,
  'GET /v1/tenant/usage': tenant,
  'PUT /v1/executors': tenant,
  'GET /v1/executors': tenant,
  'DELETE /v1/executors/{agentId}': tenant,
  'GET /v1/executors/connect': executorWork,
  'GET /v1/actions': executorWork,
  'POST /v1/actions/claim': executorWork,
  'POST /v1/actions/{actionId}/claim': executorWork,
  'POST /v1/actions/{actionId}/heartbeat': executorWork,
  'GET /v1/interactions': { ...sessions, kinds: everyKey },
  'PUT /v1/agents/{agentId}': { ...writeAgents, reaches: 'agent' },
  'DELETE /v1/agents/{agentId}': { ...writeAgents, reaches: 'agent' },
  'GET /v1/agents/{agentId}': { ...readAgents, reaches: 'agent' },
  'GET /v1/agents': readAgents,
  'GET /v1/agents/{agentId}/versions': { ...readAgents, reaches: 'agent' },
  'GET /v1/agents/{agentId}/versions/{version}': { ...readAgents, reaches: 'agent' },
  'POST /v1/vaults': vaults,
  'GET /v1/vaults': vaults,
  'DELETE /v1/vaults': vaults,
  'GET /v1/vaults/{vaultId}': vaults,
  'DELETE /v1/vaults/{vaultId}': vaults,
  'POST /v1/vaults/{vaultId}/credentials': vaults,
  'GET /v1/vaults/{vaultId}/credentials': vaults,
  'GET /v1/vaults/{vaultId}/credentials/{credentialId}': vaults,
  'POST /v1/vaults/{vaultId}/credentials/{credentialId}': vaults,
  'DELETE /v1/vaults/{vaultId}/credentials/{credentialId}': vaults,
  'POST /v1/vaults/{vaultId}/credentials/{credentialId}/authorize': vaults,
  'POST /v1/vaults/{vaultId}/credentials/{credentialId}/complete': vaults,
  'GET /v1/tenant/artifacts': tenant,
  'PUT /v1/tenant/artifacts': tenant,
  'GET /v1/tenant/sandbox': tenant,
  'PUT /v1/sandboxes/{sandboxId}': changeSandbox,
  'GET /v1/sandboxes': readSandboxes,
  'GET /v1/sandboxes/{sandboxId}': oneSandbox,
  'POST /v1/sandboxes/{sandboxId}/stop': changeSandbox,
  'POST /v1/sandboxes/{sandboxId}/reset': changeSandbox,
  'DELETE /v1/sandboxes/{sandboxId}': changeSandbox,
  'GET /v1/sandboxes/{sandboxId}/events': oneSandbox,
  'GET /v1/sandboxes/{sandboxId}/tree': oneSandbox,
  'GET /v1/sandboxes/{sandboxId}/files/{path}': oneSandbox,
  'PUT /v1/sandboxes/{sandboxId}/files/{path}': changeSandbox,
  'DELETE /v1/sandboxes/{sandboxId}/files/{path}': changeSandbox,
  'POST /v1/artifacts': { ...oneSession, query: '?name=a&sessionId={sessionId}' },
  'GET /v1/artifacts': sessions,
  'GET /v1/artifacts/{artifactId}': oneArtifact,
  'DELETE /v1/artifacts/{artifactId}': oneArtifact,
  'POST /v1/artifacts/{artifactId}/versions': oneArtifact,
  'POST /v1/artifacts/{artifactId}/links': oneArtifact,
  'GET /v1/artifacts/{artifactId}/versions/{version}/content': oneArtifact,
  'GET /v1/artifacts/{artifactId}/versions/{version}/tree': oneArtifact,
  'GET /v1/artifacts/{artifactId}/versions/{version}/files/{path}': oneArtifact,
  'GET /v1/artifacts/{artifactId}/versions/{version}/diff': oneArtifact,
  'GET /v1/artifacts/{artifactId}/versions/{version}/zip': oneArtifact,
  'GET /v1/artifact-links/{token}': open,
  'PUT /v1/sessions/{sessionId}': { ...oneSession, body: { agentId: 'agent' } },
  'GET /v1/sessions/{sessionId}': oneSession,
  'DELETE /v1/sessions/{sessionId}': oneSession,
  'GET /v1/sessions': sessions,
  'POST /v1/sessions/{sessionId}/commands': { ...oneSession, kinds: [...everyKey, 'executor'] },
  'POST /v1/sessions/{sessionId}/fork': {
    ...oneSession,
    body: { requestId: 'r', idempotencyKey: 'never-used', id: 'fork' },
  },
  'GET /v1/sessions/{sessionId}/items': oneSession,
  'GET /v1/sessions/{sessionId}/events': oneSession,
  'GET /v1/sessions/{sessionId}/calls/model': { ...sessions, scopes: [] },
  'GET /v1/sessions/{sessionId}/usage': { ...sessions, scopes: [] },
};
