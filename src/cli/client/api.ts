import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import type { Config } from '../../app/config.ts';
import { readIfPresent } from '../../lib/files.ts';
import { StartError } from '../../lib/start-error.ts';
import { readArguments } from '../arguments.ts';
import { plainly, readContext } from './context.ts';
import type { Context, Environment } from './context.ts';
import { table } from './show.ts';

const OPTIONS = { body: { type: 'string' } } as const;

const operationSchema = z.object({
  operationId: z.string(),
  summary: z.string(),
  tags: z.array(z.string()),
  parameters: z.array(z.looseObject({ name: z.string().optional(), in: z.string().optional() })).default([]),
});
const documentSchema = z.object({ paths: z.record(z.string(), z.record(z.string(), operationSchema)) });

interface Operation extends z.infer<typeof operationSchema> {
  readonly method: string;
  readonly path: string;
}

/**
 * `agent-host api <operationId> [name=value …] [--body <json>|@file|-]`: any operation of the Host's own document.
 * Without an operationId it lists them. The answer goes to standard output as is. Returns the exit code: 1 for a
 * refusal.
 */
export async function api(config: Config, env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, OPTIONS);
  const context = await readContext(env);
  return await plainly(context.url, async () => {
    const operations = await operationsOf(context.url);
    const [id, ...given] = words;
    if (id === undefined) {
      const rows = operations.map(({ operationId, tags, summary }) => [operationId, tags.join(), summary]);
      process.stdout.write(table(['OPERATION', 'GROUP', 'WHAT IT DOES'], rows));
      return 0;
    }
    const operation = operations.find((one) => one.operationId === id);
    if (operation === undefined) throw new StartError(`no operation is named ${id}; agent-host api lists them`);
    const body = values.body === undefined ? undefined : await bodyOf(values.body);
    const response = await fetch(`${context.url}${pathOf(operation, given)}`, {
      method: operation.method,
      headers: {
        ...(await headersOf(operation, context, { config, env })),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body }),
    });
    for await (const chunk of response.body ?? []) process.stdout.write(chunk);
    if (process.stdout.isTTY) process.stdout.write('\n');
    return response.ok ? 0 : 1;
  });
}

async function operationsOf(url: string): Promise<Operation[]> {
  const { paths } = documentSchema.parse(await (await fetch(`${url}/openapi.json`)).json());
  return Object.entries(paths)
    .flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, operation]) => ({ ...operation, method: method.toUpperCase(), path })),
    )
    .toSorted((a, b) => a.operationId.localeCompare(b.operationId));
}

/** @throws StartError when a parameter is missing, or is not one of the operation */
function pathOf({ operationId, path, parameters }: Operation, given: readonly string[]): string {
  const query = new URLSearchParams();
  const places = new Map(parameters.map((one) => [one.name, one.in]));
  let filled = path;
  for (const pair of given) {
    const at = pair.indexOf('=');
    const [name, value] = [pair.slice(0, Math.max(0, at)), pair.slice(at + 1)];
    const place = places.get(name);
    if (place === 'path') filled = filled.replace(`{${name}}`, encodeURIComponent(value));
    else if (place === 'query') query.append(name, value);
    else throw new StartError(`${operationId} has no parameter ${name || pair}; it has ${namesOf(parameters)}`);
  }
  const missing = /\{(\w+)\}/.exec(filled)?.[1];
  if (missing !== undefined) throw new StartError(`${operationId} needs ${missing}=…`);
  return query.size === 0 ? filled : `${filled}?${query.toString()}`;
}

function namesOf(parameters: Operation['parameters']): string {
  const own = parameters.filter((one) => one.in === 'path' || one.in === 'query');
  return own.map(({ name }) => name).join(', ') || 'none';
}

async function headersOf(
  { tags }: Operation,
  { tenant, key }: Context,
  { config, env }: { readonly config: Config; readonly env: Environment },
): Promise<Record<string, string>> {
  const protocol = { 'svc-protocol': '8' };
  if (!tags.includes('Admin')) return { ...protocol, authorization: `Bearer ${key}`, 'svc-tenant': tenant };
  const adminKey = env['AGENT_HOST_ADMIN_KEY'] || (await readIfPresent(`${config.dataDir}/admin-key`))?.trim();
  if (adminKey === undefined) throw new StartError('the key of the Host admin is missing; set AGENT_HOST_ADMIN_KEY');
  return { ...protocol, authorization: `Bearer ${adminKey}` };
}

/** A JSON text, `@file`, or `-` for standard input. */
async function bodyOf(given: string): Promise<string> {
  if (given.startsWith('@')) return await readFile(given.slice(1), 'utf8');
  if (given !== '-') return given;
  let text = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) text += String(chunk);
  return text;
}
