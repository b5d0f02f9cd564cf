import swagger from '@fastify/swagger';
import type { FastifyInstance, RouteOptions } from 'fastify';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';

/**
 * What each operation is for. The shapes come from the schemas that validate; a route without a line here does not start,
 * so the document names them all.
 */
const OPERATIONS: Readonly<Record<string, readonly [tag: string, summary: string, description?: string]>> = {
  'GET /health': ['Host', 'Whether the process lives, and which protocol it speaks', 'Needs no credential.'],
  'GET /ready': ['Host', 'Whether everything that it needs can be reached', 'Needs no credential.'],
  'GET /v1/me': ['Host', 'What the calling credential is'],
  'GET /v1/admin/status': ['Admin', 'The Host, its nodes, and how far its read models are'],
  'POST /v1/admin/host/shutdown': ['Admin', 'Stop this process gracefully', 'Only over the loopback interface.'],
  'POST /v1/admin/tenants': [
    'Admin',
    'Create a tenant with its first application key',
    'Repeatable by idempotencyKey or tenantId: 200 without the key. The key is shown this once.',
  ],
  'GET /v1/admin/tenants': ['Admin', 'List tenants, newest first'],
  'GET /v1/admin/tenants/:tenantId': ['Admin', 'Inspect a tenant'],
  'DELETE /v1/admin/tenants/:tenantId': [
    'Admin',
    'Delete a tenant and everything of it',
    'activeWork says what becomes of turns that run: refuse (409 while there are any), drain (wait for them up to timeoutSeconds) or cancel.',
  ],
  'GET /v1/tenant': ['Tenant', 'Status of the calling tenant'],
  'PUT /v1/tenant/config/seed': ['Tenant', 'Write what is absent of the configuration'],
  'GET /v1/tenant/audit': ['Tenant', 'Who changed what, newest first'],
  'PUT /v1/tenant/keys/:keyId': [
    'Tenant',
    'Make a key, or a new secret for one',
    'The old secret is dead at once on this node and within a second on every other. The new one is shown this once.',
  ],
  'GET /v1/tenant/keys': ['Tenant', 'List keys, never their secrets'],
  'DELETE /v1/tenant/keys/:keyId': ['Tenant', 'Delete a key', 'The last application key cannot be deleted.'],
  'PUT /v1/tenant/issuers/:name': ['Tenant', 'Trust the tokens of an issuer'],
  'GET /v1/tenant/issuers': ['Tenant', 'List issuers'],
  'GET /v1/tenant/issuers/:name': ['Tenant', 'One issuer'],
  'DELETE /v1/tenant/issuers/:name': ['Tenant', 'Trust an issuer no longer'],
  'GET /v1/tenant/model': ['Models', 'The model of turns that name none of their own'],
  'PUT /v1/tenant/model': [
    'Models',
    'Select a model, with the address and the credential of its provider',
    'Replaces the selection. A credential that was stored for another baseUrl has to be sent again with the new one.',
  ],
  'PUT /v1/tenant/model/selection': ['Models', 'Select another model; addresses, credentials and settings stay'],
  'GET /v1/tenant/model/catalog': ['Models', 'Providers, and the models whose prices are known'],
  'GET /v1/tenant/model/credentials/:provider': ['Models', 'Whether a credential is stored; never the key'],
  'PUT /v1/tenant/model/credentials/:provider': [
    'Models',
    'Store or replace the key for a provider',
    'The next model call uses it: at once on this node and within a second on every other.',
  ],
  'DELETE /v1/tenant/model/credentials/:provider': ['Models', 'Take the key for a provider away'],
  'GET /v1/tenant/budgets': ['Model calls', 'Budgets, with what is spent of them in the present period'],
  'PUT /v1/tenant/budgets': [
    'Model calls',
    'Say what model calls may cost',
    'Replaces the list. A call that would pass a budget, counting those under way on all nodes, pauses its turn with a question (`budgetId`) that an application or management key answers with `respond`: `{ raise: { limitUsd?, limitTokens? } }` or `{ raise: false }`. A call is expected to cost what the one before it cost, else the average. A budget that begins has spent what the ledger has of its period; calls that are under way at that moment count when they end.',
  ],
  'PUT /v1/executors': [
    'Executors',
    'Register executors, all of them or none',
    'The token is chosen by the application; only its hash is kept. Another token for the same agent replaces the old one, which is dead at once on this node and within a second on every other. Executors that are not named stay as they are.',
  ],
  'GET /v1/executors': [
    'Executors',
    'List executors, by agent, never their tokens',
    '`connected`: a discovery stream of it is open on some node; after a crash of a node up to 10 s old.',
  ],
  'DELETE /v1/executors/:agentId': ['Executors', 'Delete an executor', 'Its token is dead, and its streams end.'],
  'GET /v1/executors/connect': [
    'Executors',
    'Hear of work, live',
    'Server-sent events for the executor of an agent: `work_available` at once when there is any, and whenever there is new, with `actions`: the oldest, or the new ones, at most 20 and 64 KiB. They can be claimed as they are. A comment line keeps a silent stream alive.',
  ],
  'GET /v1/actions': ['Executors', "Pending actions of the executor's agent, oldest first"],
  'POST /v1/actions/claim': [
    'Executors',
    'Take the oldest pending actions',
    'At most `limit` of them. The same requestId, sent again to any node, gets the same claims while they hold, whatever its limit, and no others. Without claims in the answer nothing waits.',
  ],
  'POST /v1/actions/:actionId/claim': [
    'Executors',
    'Take an action',
    'Exclusive: of any number of executors one gets it. The same requestId gets the claim again while it holds, from any node, after any crash. It ends with `leaseExpiresAt` unless heartbeats come.',
  ],
  'POST /v1/actions/:actionId/heartbeat': [
    'Executors',
    'Keep an action',
    'The lease lasts for another while. It does not run out while no node could have heard a heartbeat: after an outage it has a whole period again. `claim_stale`: it was over already; stop the work.',
  ],
  'GET /v1/interactions': [
    'Sessions',
    'What people have to answer, over all sessions, oldest first',
    'Approvals and questions that are open. A subject sees those of its own sessions; a management key sees questions about budgets only.',
  ],
  'PUT /v1/agents/:agentId': ['Agents', 'Save an agent definition', 'A new version whenever it differs from the last.'],
  'GET /v1/agents': ['Agents', 'List agents, by id'],
  'GET /v1/agents/:agentId': ['Agents', 'One agent, with its manifest'],
  'GET /v1/agents/:agentId/versions': ['Agents', 'The versions of an agent, oldest first'],
  'DELETE /v1/agents/:agentId': ['Agents', 'Archive an agent', 'No new session; old ones go on.'],
  'GET /v1/tenant/artifacts': ['Tenant', "Limits of the tenant's artifacts, and what they hold"],
  'PUT /v1/tenant/artifacts': [
    'Tenant',
    "Set limits of the tenant's artifacts",
    'A limit that is not named stays. What is stored already stays too.',
  ],
  'POST /v1/artifacts': [
    'Artifacts',
    'Upload a file as a new artifact',
    "The body is the file itself, streamed; Content-Type is its media type (without one: by its name). As a subject, sessionId is required. Past the file's limit or the tenant's total: 413, and nothing is stored. A session has 10,000 artifacts in its life, deleted ones included; the next is refused with 409.",
  ],
  'GET /v1/artifacts': ['Artifacts', 'List artifacts, oldest first', 'Of one session, or of all within reach.'],
  'GET /v1/artifacts/:artifactId': ['Artifacts', 'One artifact with its versions, oldest first'],
  'DELETE /v1/artifacts/:artifactId': [
    'Artifacts',
    'Delete an artifact with every version and its bytes',
    'Its links stop working.',
  ],
  'POST /v1/artifacts/:artifactId/versions': [
    'Artifacts',
    'Upload a file as a further version',
    'The body is the file.',
  ],
  'POST /v1/artifacts/:artifactId/links': [
    'Artifacts',
    'Make a link to a version',
    'Whoever has the path may read the version (a folder as a zip) until it expires, without a credential.',
  ],
  'GET /v1/artifacts/:artifactId/versions/:version/content': [
    'Artifacts',
    'The bytes of a file',
    'Range, If-Range and If-None-Match are understood; the entity tag is the quoted sha256.',
  ],
  'GET /v1/artifacts/:artifactId/versions/:version/tree': ['Artifacts', 'The files of a version, by path'],
  'GET /v1/artifacts/:artifactId/versions/:version/files/:path': [
    'Artifacts',
    'The bytes of one file of a version',
    'Slashes of the path may be sent as they are, or as %2F. Ranges and entity tags as for the content.',
  ],
  'GET /v1/artifacts/:artifactId/versions/:version/diff': [
    'Artifacts',
    'Files added, removed and changed',
    'From the version before, or from the one that `from` names; version 1 without `from` lists every file as added.',
  ],
  'GET /v1/artifacts/:artifactId/versions/:version/zip': ['Artifacts', 'All files of a version as a zip archive'],
  'GET /v1/artifact-links/:token': ['Artifacts', 'What a link opens', 'The link is its own credential.'],
  'PUT /v1/sessions/:sessionId': [
    'Sessions',
    'Open a session, or get the one that is there',
    'The same body gives the same session; labels may change; other content is a conflict.',
  ],
  'DELETE /v1/sessions/:sessionId': [
    'Sessions',
    'Delete a session with its history and calls',
    'Refused while a turn is active, and with `conflict` while forks of it are there. The id may be used again; cursors from before are invalid then.',
  ],
  'GET /v1/sessions': [
    'Sessions',
    'List sessions, newest first',
    'Shows what this node has accepted before it was asked. Where its read model is more than 100 ms behind, `asOf` is the time up to which the list is complete.',
  ],
  'GET /v1/sessions/:sessionId': ['Sessions', 'One session, with everything acknowledged before the request'],
  'POST /v1/sessions/:sessionId/fork': [
    'Sessions',
    'Fork a session at any place of its history',
    'The new session has the history up to `cursor`, that record included, or all there is now, and the agent, subject, info and labels of the one it comes from; it is idle, whatever that one does. Its records have its own sessionId and cursors; keys, calls and usage start fresh. A session with forks is deleted after them. The same idempotencyKey with the same body answers with the same session, as it is then.',
  ],
  'POST /v1/sessions/:sessionId/commands': [
    'Sessions',
    'Send a command; a message starts a turn',
    'Accepted means durable. The same idempotencyKey with the same body gives the first answer again, for as long as the session exists.',
  ],
  'GET /v1/sessions/:sessionId/items': [
    'Sessions',
    'The history, in pages',
    'The cursor is exclusive. Every event acknowledged before the request is there.',
  ],
  'GET /v1/sessions/:sessionId/events': [
    'Sessions',
    'The history, live',
    'Server-sent events: a control frame `ready`, then each record with its cursor as id, from `cursor` or Last-Event-ID on, else from the beginning; `cursor=latest` begins now. A comment line keeps a silent stream alive. Resume on any node.',
  ],
  'GET /v1/sessions/:sessionId/usage': [
    'Sessions',
    'What the model calls of a session, or of one turn, used',
    'Every call of the ledger counts once: failed, cancelled and lost ones with what they reported, repeated ones too (`duplicates` says how many). `tokensReported` and `costKnown` are true when they are of all calls that could have used anything. No subject may read it.',
  ],
  'GET /v1/tenant/usage': [
    'Model calls',
    'What model calls used, by agent, model, session or day',
    'Calls requested from `from` on and before `to` (RFC 3339; at most 400 days; without them the last 30 days, today with them). A group has the key of its agent (an agent used as a tool has its own), its model as `provider/model`, its session, or its day in UTC; groups come in the order of their keys, `total` is of all of them. Sessions that were deleted are not in it.',
  ],
  'GET /v1/sessions/:sessionId/calls/model': [
    'Sessions',
    'The ledger of model calls, oldest first',
    'No subject may read it.',
  ],
};

const PROTOCOL_HEADER = { 'Svc-Protocol': { type: 'string', description: 'Protocol version, 2 to 8.' } };
const TENANT_HEADERS = {
  ...PROTOCOL_HEADER,
  'Svc-Tenant': { type: 'string', description: 'The tenant id.' },
  'Svc-Subject': { type: 'string', description: 'The person that an application key acts for.' },
  'Svc-Scopes': { type: 'string', description: 'Scopes of the subject, separated by spaces; required with it.' },
};
const BYTES = { description: 'The bytes', content: { '*/*': { schema: { type: 'string', format: 'binary' } } } };
/** Routes that answer with bytes, by how their path ends. */
const SENDS_BYTES = /\/(content|zip|files\/:path|artifact-links\/:token)$/;
const RAW_BODY = { consumes: ['*/*'], body: { type: 'string', format: 'binary' } };
const EVENT_STREAM = { description: 'The stream', content: { 'text/event-stream': { schema: { type: 'string' } } } };

const MEANING: Readonly<Record<string, string>> = {
  '200': 'Done',
  '201': 'Created',
  '202': 'Accepted',
  '503': 'Not ready',
  default: 'Refused: docs/errors.md says what each code means',
};

/** `GET /openapi.json`, from the same schemas that validate. */
export async function addDocument(app: FastifyInstance, version: string): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Agent runtime Host', version },
      components: { securitySchemes: { key: { type: 'http', scheme: 'bearer' } } },
    },
    transform: (input) => {
      const { schema, url } = jsonSchemaTransform(input);
      return { schema: { ...schema, ...described(input.route, schema) }, url };
    },
    transformObject: (document) => withoutInputCopies(jsonSchemaTransformObject(document)),
  });
  app.addHook('onRoute', (route) => {
    if (route.schema?.hide !== true) operationOf(route);
  });
  app.get('/openapi.json', { config: { rules: { access: null } }, schema: { hide: true } }, () => app.swagger());
}

/** HEAD mirrors GET and is described with it. */
function operationOf({ method, url }: Pick<RouteOptions, 'method' | 'url'>): (typeof OPERATIONS)[string] {
  const name = `${String(method) === 'HEAD' ? 'GET' : String(method)} ${url}`;
  const operation = OPERATIONS[name];
  if (operation === undefined) throw new Error(`${name} is missing in http/document.ts`);
  return operation;
}

function described(route: RouteOptions, schema: { readonly hide?: boolean; readonly response?: unknown }): object {
  if (schema.hide === true) return {};
  const [tag, summary, description] = operationOf(route);
  const open = route.config?.rules?.access === null;
  const admin = tag === 'Admin';
  const headers = {
    type: 'object',
    properties: admin ? PROTOCOL_HEADER : TENANT_HEADERS,
    required: admin ? ['Svc-Protocol'] : ['Svc-Protocol', 'Svc-Tenant'],
  };
  const response = Object.entries(Object(extensible(schema.response ?? {}))).map(([status, shape]) => [
    status,
    { description: MEANING[status] ?? 'The answer', ...Object(shape) },
  ]);
  const streams = route.url.endsWith('/events') || route.url.endsWith('/connect');
  return {
    tags: [tag],
    summary,
    ...(description === undefined ? {} : { description }),
    ...(open ? {} : { headers, security: [{ key: [] }] }),
    ...(route.config?.rules?.rawBody === true ? RAW_BODY : {}),
    response: {
      ...(streams ? { 200: EVENT_STREAM } : {}),
      ...(SENDS_BYTES.test(route.url) ? { 200: BYTES } : {}),
      ...Object.fromEntries(response),
    },
  };
}

/** Responses may gain members: a client that refuses unknown ones would break with the next version. */
function extensible(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(extensible);
  if (typeof schema !== 'object' || schema === null) return schema;
  const members = Object.entries(schema).filter(
    ([name, value]) => !(name === 'additionalProperties' && value === false),
  );
  return Object.fromEntries(members.map(([name, value]) => [name, extensible(value)]));
}

type Document = ReturnType<typeof jsonSchemaTransformObject>;

/** The library makes each named shape twice, as it is sent and as it is read; no request uses a named one. */
function withoutInputCopies(document: Document): Document {
  if (!('components' in document)) return document;
  const { schemas = {} } = document.components ?? {};
  const kept = Object.entries(schemas).filter(
    ([name]) => !(name.endsWith('Input') && name.slice(0, -'Input'.length) in schemas),
  );
  const shapes: unknown = Object.fromEntries(kept.map(([name, schema]) => [name, extensible(schema)]));
  return Object.assign(document, { components: { ...document.components, schemas: shapes } });
}
