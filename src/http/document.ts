import swagger from '@fastify/swagger';
import type { FastifyInstance, RouteOptions } from 'fastify';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import { TAGS } from './described.ts';
import { withNamedShapes } from './document-shapes.ts';
import { withEdges } from './document-edges.ts';
import type { OperationFacts } from './document-edges.ts';
import { EXAMPLES } from './document-examples.ts';
import { referencePage } from './reference.ts';

const DESCRIPTION = `The HTTP API of the agent runtime Host.

Every request to \`/v1\` names the protocol version in \`Svc-Protocol\` and brings its credential as a bearer token; all but those of the Host admin name the tenant in \`Svc-Tenant\`. Every answer has an \`x-request-id\`.

A refusal is a \`Problem\`: its \`code\` says what is wrong, its \`message\` what to do. Answers may gain members, histories types of records, and refusals codes: a client ignores what it does not know.`;

/** `GET /openapi.json`, made of the schemas that validate, and `GET /docs`, the same for people. */
export async function addDocument(app: FastifyInstance, version: string): Promise<void> {
  const facts = new Map<string, OperationFacts>();
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Agent runtime Host',
        version,
        description: DESCRIPTION,
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: '/' }],
      tags: Object.entries(TAGS).map(([name, description]) => ({ name, description })),
      components: { securitySchemes: { key: { type: 'http', scheme: 'bearer' } } },
    },
    transform: (input) => {
      const { schema, url } = jsonSchemaTransform(input);
      const operationId = input.route.schema?.operationId;
      if (operationId !== undefined) facts.set(operationId, factsOf(input.route));
      return { schema: { ...schema, ...(input.route.config?.rules?.access === null ? { security: [] } : {}) }, url };
    },
    transformObject: (document) => {
      const whole: unknown = jsonSchemaTransformObject(document);
      const described = withEdges(JSON.parse(JSON.stringify(whole)), facts, EXAMPLES);
      return { ...withNamedShapes(described), security: [{ key: [] }] };
    },
  });
  const ids = new Set<string>();
  app.addHook('onRoute', (route) => {
    // HEAD mirrors GET and is described with it.
    if (route.schema?.hide !== true && String(route.method) !== 'HEAD') requireDescribed(route, ids);
  });
  const open = { config: { rules: { access: null } }, schema: { hide: true } };
  app.get('/openapi.json', open, () => app.swagger());
  let page: string | undefined;
  app.get('/docs', open, async (_request, reply) => {
    page ??= referencePage(app.swagger());
    return await reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', "default-src 'none'; style-src 'unsafe-inline'")
      .send(page);
  });
}

function requireDescribed({ method, url, schema }: RouteOptions, ids: Set<string>): void {
  const { operationId, summary, tags } = schema ?? {};
  if (operationId === undefined || summary === undefined || tags === undefined)
    throw new Error(`${String(method)} ${url} has no operationId, summary and tags; see http/described.ts`);
  if (ids.has(operationId)) throw new Error(`two routes have the operationId ${operationId}`);
  ids.add(operationId);
}

function factsOf({ method, config, schema }: RouteOptions): OperationFacts {
  const access = config?.rules?.access ?? null;
  return {
    realm: access === null ? 'open' : access.kinds.includes('admin') ? 'admin' : 'tenant',
    reads: String(method) === 'GET',
    takes: {
      params: schema?.params !== undefined,
      body: schema?.body !== undefined,
      file: config?.rules?.rawBody === true,
    },
    sends: config?.sends ?? null,
  };
}
