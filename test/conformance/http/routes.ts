import { badModels, MODEL, MODEL_ROUTES } from './model-routes.ts';
import { SANDBOX_ROUTES } from './sandbox-rows.ts';
import { ARTIFACT_ROUTES } from './artifact-rows.ts';
import { badClientIds, LONG } from './route-row.ts';
import type { BodyRow, Json, RouteRow } from './route-row.ts';
import { VAULT_ROUTES } from './vault-rows.ts';
import { budgets, executors, issuers } from './tenant-bodies.ts';

/** How to call each route rightly; what is done wrong with it is bad-input.ts. */

const ids = { requestId: 'rq', idempotencyKey: 'never-used' };
const badIds: readonly Json[] = [
  { requestId: '' },
  { requestId: LONG },
  { idempotencyKey: '' },
  { idempotencyKey: LONG },
];
const badRequestIds: readonly Json[] = [{ requestId: '' }, { requestId: LONG }];
const BAD_TIMES = [
  '',
  'now',
  '2026-01-01',
  '2026-13-01T00:00:00Z',
  '2026-01-01T00:00:00',
  '0',
  '2026-01-01T00:00:00Z%00',
  '0000-01-01T00:00:00%2B01:00',
  '2026-01-01T00:00:00+01:00',
];
const BAD_QUERY_TEXT = ['', '%00', 'a%00b', 'x'.repeat(401)];

const manifest = {
  name: 'n',
  description: 'd',
  metadata: { any: [1, { thing: null }] },
  instructions: 'i',
  model: { provider: 'fixture', model: 'm', settings: { temperature: 1, maxOutputTokens: 10, reasoningEffort: 'low' } },
  limits: { maxSteps: 3, maxTurnSeconds: 60 },
};
const badManifests: readonly Json[] = [
  { ...manifest, model: { provider: 'nobody', model: 'm' } },
  { ...manifest, model: { provider: 'fixture', model: '' } },
  { ...manifest, limits: { maxSteps: 0 } },
  { ...manifest, limits: { maxSteps: 1.5 } },
  { ...manifest, limits: { maxTurnSeconds: 0 } },
  { ...manifest, name: '' },
  { ...manifest, tools: 'all' },
  { ...manifest, mcpServers: {} },
  { ...manifest, mcpServers: [{ name: 'a b', url: 'https://mcp.example/' }] },
  { ...manifest, mcpServers: [{ name: 'a', url: 'ftp://mcp.example/' }] },
  { ...manifest, mcpServers: [{ name: 'a', url: 'https://mcp.example/', headers: { Authorization: 'Bearer x' } }] },
  { ...manifest, mcpServers: [{ name: 'a', url: 'https://mcp.example/', timeoutSeconds: 0 }] },
  { ...manifest, instructions: undefined },
];

const commands: readonly BodyRow[] = [
  {
    whole: { ...ids, type: 'message', content: 'c', manifest, whenBusy: 'refuse' },
    free: ['manifest.metadata'],
    required: ['requestId', 'idempotencyKey', 'type', 'manifest.instructions'],
    wrong: [
      ...badIds,
      { type: 'shout' },
      { content: '' },
      { content: undefined },
      { content: 'c', parts: [{ type: 'text', text: 't' }] },
      { whenBusy: 'never' },
      ...badManifests.map((wrong) => ({ manifest: wrong })),
    ],
  },
  {
    whole: {
      ...ids,
      type: 'message',
      parts: [
        { type: 'text', text: 't' },
        { type: 'file', artifactId: 'af_1', version: 1 },
      ],
    },
    required: ['parts', 'parts.0.type', 'parts.0.text', 'parts.1.artifactId'],
    wrong: [
      { parts: [] },
      { parts: Array.from({ length: 33 }, () => ({ type: 'text', text: 't' })) },
      { parts: [{ type: 'image', url: 'u' }] },
      { parts: [{ type: 'text', text: '' }] },
      { parts: [{ type: 'file', artifactId: 'af_1', version: 0 }] },
    ],
  },
  {
    whole: { ...ids, type: 'cancel', turnId: 'tu_1', reason: 'r' },
    required: ['requestId', 'idempotencyKey', 'type'],
    wrong: [...badIds, { turnId: '' }, { turnId: 'x'.repeat(201) }, { reason: 'x'.repeat(2_001) }],
  },
  {
    whole: { ...ids, type: 'retry', turnId: 'tu_1' },
    required: ['requestId', 'idempotencyKey', 'type'],
    wrong: [...badIds, { turnId: '' }, { turnId: 'x'.repeat(201) }, { content: 'x' }],
  },
  {
    whole: { ...ids, type: 'approve', interactionId: 'in_1', approved: true, reason: 'r' },
    required: ['requestId', 'idempotencyKey', 'interactionId', 'approved'],
    wrong: [...badIds, { interactionId: '' }],
  },
  {
    whole: { ...ids, type: 'respond', interactionId: 'in_1', value: { any: 1 } },
    free: ['value'],
    required: ['requestId', 'idempotencyKey', 'interactionId'],
    wrong: [...badIds, { interactionId: '' }],
  },
  {
    whole: {
      ...ids,
      type: 'action_result',
      actionId: 'ac_1',
      claimId: 'cl_1',
      generation: 1,
      outcome: { kind: 'ask', interaction: { kind: 'question', prompt: 'p', schema: { any: 1 } } },
    },
    free: ['outcome.interaction.schema'],
    required: ['actionId', 'claimId', 'generation', 'outcome', 'outcome.interaction.prompt'],
    wrong: [...badIds, { generation: 0 }, { outcome: { kind: 'lost' } }, { outcome: { kind: 'failed', code: 'c' } }],
  },
];

const agentId = { agentId: 'agent' };
const agentVersion = { ...agentId, version: '1' };
const keyId = { keyId: 'app' };
const name = { name: 'people' };
const sessionId = { sessionId: 'room/1' };

/** One row for each operation of the document, by its method and path there. */
export const ROUTES: Readonly<Record<string, RouteRow>> = {
  'GET /health': { realm: 'open' },
  'GET /ready': { realm: 'open' },
  'GET /v1/me': { realm: 'tenant', scope: 'vaults:own' },
  'POST /v1/admin/tenants': {
    realm: 'admin',
    bodies: [
      {
        whole: {
          name: 'n',
          ...ids,
          tenantId: `tn_${'0'.repeat(26)}`,
          principalId: 'p',
          credentialHash: 'a'.repeat(64),
          studioCredentialHash: 'b'.repeat(64),
        },
        required: ['name'],
        wrong: [
          ...badIds,
          { name: '' },
          { name: 'x'.repeat(201) },
          ...['tn_1', `tn_${'I'.repeat(26)}`, `tn_${'u'.repeat(26)}`, ''].map((tenantId) => ({ tenantId })),
          ...[...badClientIds, 'studio'].map((principalId) => ({ principalId })),
          ...['', 'A'.repeat(64), 'a'.repeat(63)].map((credentialHash) => ({ credentialHash })),
          { studioCredentialHash: 'g'.repeat(64) },
        ],
      },
    ],
  },
  'GET /v1/admin/tenants': { realm: 'admin', limitMax: 200 },
  'GET /v1/admin/tenants/{tenantId}': { realm: 'admin', params: { tenantId: `tn_${'0'.repeat(26)}` } },
  'DELETE /v1/admin/tenants/{tenantId}': {
    realm: 'admin',
    params: { tenantId: `tn_${'0'.repeat(26)}` },
    query: {
      activeWork: ['', 'REFUSE', 'kill', 'refuse%00', 'drain,cancel'],
      timeoutSeconds: ['', '0', '-1', '601', '1.5', 'x', '1e2', '%201', '9999999999999999999999'],
    },
  },
  'GET /v1/admin/status': { realm: 'admin' },
  'POST /v1/admin/host/shutdown': { realm: 'admin' },
  'GET /v1/tenant': { realm: 'tenant' },
  'PUT /v1/tenant/config/seed': {
    realm: 'tenant',
    bodies: [
      {
        whole: { requestId: 'rq', fixtureModel: true, model: MODEL },
        required: ['requestId', 'model.provider', 'model.model'],
        wrong: [
          { requestId: '' },
          { requestId: LONG },
          { fixtureModel: false },
          ...badModels.map((wrong) => ({ model: { ...MODEL, ...wrong } })),
          { sandbox: false },
        ],
      },
    ],
  },
  ...MODEL_ROUTES,
  'GET /v1/tenant/audit': { realm: 'tenant', limitMax: 200 },
  'GET /v1/tenant/keys': { realm: 'tenant' },
  'PUT /v1/tenant/keys/{keyId}': {
    realm: 'tenant',
    params: keyId,
    bodies: [
      {
        whole: { requestId: 'rq', role: 'management', credentialHash: 'a'.repeat(64) },
        required: [],
        wrong: [
          { requestId: '' },
          { requestId: LONG },
          ...['', 'studio', 'admin', 'executor', 'APPLICATION'].map((role) => ({ role })),
          ...['', 'A'.repeat(64), 'a'.repeat(63), 'a'.repeat(65), 'g'.repeat(64)].map((credentialHash) => ({
            credentialHash,
          })),
        ],
      },
    ],
  },
  'DELETE /v1/tenant/keys/{keyId}': { realm: 'tenant', params: keyId },
  'GET /v1/tenant/issuers': { realm: 'tenant' },
  'PUT /v1/tenant/issuers/{name}': { realm: 'tenant', params: name, bodies: issuers },
  'GET /v1/tenant/issuers/{name}': { realm: 'tenant', params: name },
  'DELETE /v1/tenant/issuers/{name}': { realm: 'tenant', params: name },
  'GET /v1/tenant/budgets': { realm: 'tenant' },
  'PUT /v1/tenant/budgets': { realm: 'tenant', bodies: [budgets] },
  'GET /v1/tenant/usage': {
    realm: 'tenant',
    limitMax: 1_000,
    query: {
      from: BAD_TIMES,
      to: [
        ...BAD_TIMES,
        '2000-01-01T00:00:00Z&from=2000-01-01T00:00:00Z',
        '2001-02-05T00:00:00.001Z&from=2000-01-02T00:00:00Z',
      ],
      groupBy: ['', 'week', 'DAY', 'day%00', 'agent,model'],
    },
  },
  'PUT /v1/executors': { realm: 'tenant', bodies: [executors] },
  'GET /v1/executors': { realm: 'tenant' },
  'DELETE /v1/executors/{agentId}': { realm: 'tenant', params: agentId },
  'GET /v1/executors/connect': { realm: 'tenant', credential: 'executor' },
  'GET /v1/actions': { realm: 'tenant', credential: 'executor', limitMax: 200 },
  'POST /v1/actions/claim': {
    realm: 'tenant',
    credential: 'executor',
    bodies: [
      {
        whole: { requestId: 'rq', limit: 10 },
        required: ['requestId', 'limit'],
        wrong: [...badRequestIds, ...[0, 101, 1.5, -1].map((limit) => ({ limit }))],
      },
    ],
  },
  'POST /v1/actions/{actionId}/claim': {
    realm: 'tenant',
    credential: 'executor',
    params: { actionId: 'ac_1' },
    bodies: [{ whole: { requestId: 'rq' }, required: ['requestId'], wrong: badRequestIds }],
  },
  'POST /v1/actions/{actionId}/heartbeat': {
    realm: 'tenant',
    credential: 'executor',
    params: { actionId: 'ac_1' },
    bodies: [
      {
        whole: { requestId: 'rq', claimId: 'cl_1', generation: 1 },
        required: ['requestId', 'claimId', 'generation'],
        wrong: [
          ...badRequestIds,
          ...['', 'x'.repeat(201)].map((claimId) => ({ claimId })),
          ...[0, 1.5].map((generation) => ({ generation })),
        ],
      },
    ],
  },
  'GET /v1/interactions': {
    realm: 'tenant',
    scope: 'sessions:own',
    limitMax: 200,
    query: {
      status: ['', 'closed', 'OPEN', 'open%00'],
      agentId: ['', '%00', 'a%20b', '%2Fa', 'x'.repeat(201)],
      subject: BAD_QUERY_TEXT,
    },
  },
  'PUT /v1/agents/{agentId}': {
    realm: 'tenant',
    scope: 'agents:write',
    params: agentId,
    bodies: [
      {
        whole: { requestId: 'rq', manifest, implementationVersion: 'v' },
        free: ['manifest.metadata'],
        required: ['manifest', 'manifest.instructions', 'manifest.model.provider', 'manifest.model.model'],
        wrong: [
          { requestId: '' },
          { requestId: LONG },
          { implementationVersion: '' },
          { implementationVersion: 'x'.repeat(201) },
          ...badManifests.map((wrong) => ({ manifest: wrong })),
        ],
      },
    ],
  },
  'DELETE /v1/agents/{agentId}': { realm: 'tenant', scope: 'agents:write', params: agentId },
  'GET /v1/agents/{agentId}': { realm: 'tenant', scope: 'agents:read', params: agentId },
  'GET /v1/agents': { realm: 'tenant', scope: 'agents:read', limitMax: 200 },
  'GET /v1/agents/{agentId}/versions': { realm: 'tenant', scope: 'agents:read', params: agentId },
  'GET /v1/agents/{agentId}/versions/{version}': { realm: 'tenant', scope: 'agents:read', params: agentVersion },
  ...ARTIFACT_ROUTES,
  ...VAULT_ROUTES,
  ...SANDBOX_ROUTES,
  'PUT /v1/sessions/{sessionId}': {
    realm: 'tenant',
    scope: 'sessions:own',
    params: sessionId,
    bodies: [
      {
        whole: {
          requestId: 'rq',
          agentId: 'agent',
          subject: 'ann',
          info: { any: [1, { thing: null }] },
          labels: { team: 'x' },
          vaultIds: ['va_1'],
          sandbox: { kind: 'virtual', spec: { python: true } },
        },
        free: ['info', 'labels'],
        required: ['agentId'],
        wrong: [
          { requestId: '' },
          { requestId: LONG },
          ...badClientIds.map((id) => ({ agentId: id })),
          ...['', 'host', 'studio', 'a b', 'ä', 'x'.repeat(201)].map((subject) => ({ subject })),
          ...[{ '': 'x' }, { 'a b': 'x' }, { a: 1 }, { a: 'x'.repeat(257) }, { a: null }].map((labels) => ({ labels })),
          { labels: Object.fromEntries(Array.from({ length: 65 }, (_, i) => [`l${i}`, ''])) },
          { vaultIds: [''] },
          { vaultIds: Array.from({ length: 33 }, () => 'va_1') },
          ...[true, {}, { id: '' }, { id: 'a', kind: 'pod' }, { kind: 'cloud' }].map((sandbox) => ({ sandbox })),
        ],
      },
    ],
  },
  'DELETE /v1/sessions/{sessionId}': { realm: 'tenant', scope: 'sessions:own', params: sessionId },
  'GET /v1/sessions/{sessionId}': { realm: 'tenant', scope: 'sessions:own', params: sessionId },
  'GET /v1/sessions': {
    realm: 'tenant',
    scope: 'sessions:own',
    limitMax: 200,
    query: {
      agentId: ['', '%00', 'a%20b', '%2Fa', 'x'.repeat(201)],
      status: ['', 'done', 'IDLE', 'idle%00'],
      label: [
        ...BAD_QUERY_TEXT,
        'team',
        '=x',
        'team=x%00',
        'team%00=x',
        'team=x&label=team',
        `a=b${'&label=a=b'.repeat(16)}`,
      ],
      subject: BAD_QUERY_TEXT,
    },
  },
  'POST /v1/sessions/{sessionId}/commands': {
    realm: 'tenant',
    scope: 'sessions:own',
    params: sessionId,
    bodies: commands,
  },
  'POST /v1/sessions/{sessionId}/fork': {
    realm: 'tenant',
    scope: 'sessions:own',
    params: sessionId,
    bodies: [
      {
        whole: { ...ids, id: 'fork', cursor: 'c' },
        required: ['requestId', 'idempotencyKey', 'id'],
        wrong: [...badIds, ...badClientIds.map((id) => ({ id })), { cursor: '' }, { cursor: 'x'.repeat(1_001) }],
      },
    ],
  },
  'GET /v1/sessions/{sessionId}/items': {
    realm: 'tenant',
    scope: 'sessions:own',
    params: sessionId,
    limitMax: 1_000,
    query: { order: ['', 'up', 'ASC', 'asc%00'], agent: BAD_QUERY_TEXT },
  },
  'GET /v1/sessions/{sessionId}/events': {
    realm: 'tenant',
    scope: 'sessions:own',
    params: sessionId,
    query: { agent: BAD_QUERY_TEXT },
  },
  'GET /v1/sessions/{sessionId}/calls/model': {
    realm: 'tenant',
    params: sessionId,
    limitMax: 200,
    query: { turnId: ['', '%00', 'x'.repeat(201)] },
  },
  'GET /v1/sessions/{sessionId}/usage': {
    realm: 'tenant',
    params: sessionId,
    query: { turnId: ['', '%00', 'x'.repeat(201)] },
  },
};
