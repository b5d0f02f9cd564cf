import { pino } from 'pino';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { globSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { version } from '../src/app/version.ts';
import { createServer } from '../src/http/server.ts';
import type { ServerOptions } from '../src/http/server.ts';

const ROOT = dirname(import.meta.dirname);
/** Where `node scripts/openapi.ts` leaves the document. */
const FILE = join(ROOT, 'node_modules/.cache/openapi.json');

/** The OpenAPI document of the sources, made without a Host: the routes are declared, and never called. */
export async function openapiDocument(): Promise<object> {
  const app = await createServer(await optionsOfNoHost());
  await app.ready();
  const document = app.swagger();
  await app.close();
  return document;
}

async function optionsOfNoHost(): Promise<ServerOptions> {
  const options: ServerOptions = Object.create(null);
  return Object.assign(options, {
    logger: pino({ level: 'silent' }),
    version: await version(),
    gate: { bodyBytesMax: 1_048_576 },
    timeouts: { headersMs: 1_000, requestMs: 1_000, uploadMs: 1_000 },
    trustedProxies: [],
    routes: await routesOfNothing(),
  });
}

/** Every `…Routes` of src/http/routes. What they need is there and does nothing: to declare a route takes no more. */
async function routesOfNothing(): Promise<FastifyPluginAsyncZod[]> {
  const nothing: unknown = new Proxy(() => undefined, { get: () => nothing, apply: () => nothing });
  const found: FastifyPluginAsyncZod[] = [];
  for (const file of globSync('src/http/routes/*.ts', { cwd: ROOT }).toSorted()) {
    const module: Record<string, unknown> = await import(join(ROOT, file));
    for (const [name, routes] of Object.entries(module)) {
      if (typeof routes === 'function' && name.endsWith('Routes')) found.push(routes(nothing));
    }
  }
  return found;
}

if (import.meta.main) {
  await mkdir(dirname(FILE), { recursive: true });
  await writeFile(FILE, JSON.stringify(await openapiDocument(), null, 2));
}
