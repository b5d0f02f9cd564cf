import { readFile } from 'node:fs/promises';
import { z } from 'zod';
import type { Config } from '../../app/config.ts';
import { misuse } from '../../lib/start-error.ts';
import { readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { escapedJson, plainText } from '../terminal.ts';
import { adminKeyFor } from './admin-key.ts';
import { plainly } from './context.ts';
import { readContext } from './context-file.ts';
import type { Context, Environment } from './context-file.ts';
import { print, table } from './output.ts';

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
  const { values, words } = readArguments(args, optionsOf('api'));
  const context = await readContext(env, values.context);
  return await plainly(context.url, async () => {
    const operations = await operationsOf(context.url);
    const [id, ...given] = words;
    if (id === undefined) {
      const rows = operations.map(({ operationId, tags, summary }) => [operationId, tags.join(), summary]);
      const shown = operations.map(({ parameters: _parameters, ...operation }) => operation);
      return print(shown, values.json, () => table(['OPERATION', 'GROUP', 'WHAT IT DOES'], rows));
    }
    const operation = operations.find((one) => one.operationId === id);
    if (operation === undefined) return misuse(`no operation is named ${id}; agent-host api lists them`);
    const body = values.body === undefined ? undefined : await bodyOf(values.body);
    const response = await fetch(`${context.url}${pathOf(operation, given)}`, {
      method: operation.method,
      headers: {
        ...(await headersOf(operation, context, { config, env })),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(body === undefined ? {} : { body }),
    });
    await printAnswer(response);
    return response.ok ? 0 : 1;
  });
}

/** As it comes for a program; a terminal obeys nothing in it. */
async function printAnswer(response: Response): Promise<void> {
  if (!process.stdout.isTTY) {
    for await (const chunk of response.body ?? []) process.stdout.write(chunk);
    return;
  }
  const isJson = /json/.test(response.headers.get('content-type') ?? '');
  for await (const text of response.body?.pipeThrough(new TextDecoderStream()) ?? [])
    process.stdout.write(isJson ? escapedJson(text) : plainText(text));
  process.stdout.write('\n');
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
    else misuse(`${operationId} has no parameter ${name || pair}; it has ${namesOf(parameters)}`);
  }
  const missing = /\{(\w+)\}/.exec(filled)?.[1];
  if (missing !== undefined) misuse(`${operationId} needs ${missing}=…`);
  return query.size === 0 ? filled : `${filled}?${query.toString()}`;
}

function namesOf(parameters: Operation['parameters']): string {
  const own = parameters.filter((one) => one.in === 'path' || one.in === 'query');
  return own.map(({ name }) => name).join(', ') || 'none';
}

async function headersOf(
  { tags }: Operation,
  { url, tenant, key }: Context,
  { config, env }: { readonly config: Config; readonly env: Environment },
): Promise<Record<string, string>> {
  const protocol = { 'svc-protocol': '8' };
  if (!tags.includes('Admin')) return { ...protocol, authorization: `Bearer ${key}`, 'svc-tenant': tenant };
  return { ...protocol, authorization: `Bearer ${await adminKeyFor(url, config, env)}` };
}

/** A JSON text, `@file`, or `-` for standard input. */
async function bodyOf(given: string): Promise<string> {
  if (given.startsWith('@')) return await readFile(given.slice(1), 'utf8');
  if (given !== '-') return given;
  let text = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) text += String(chunk);
  return text;
}
