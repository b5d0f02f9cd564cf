import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { createClient, Problem } from '../../client/client.ts';
import type { Client } from '../../client/client.ts';
import { readIfPresent } from '../../lib/files.ts';
import { StartError } from '../../lib/start-error.ts';

/** Which Host and tenant client commands talk to, and with which key. */
const contextSchema = z.object({ url: z.string(), tenant: z.string(), key: z.string(), agent: z.string() });
export type Context = z.infer<typeof contextSchema>;

/** The environment that these commands use. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** `AGENT_HOST_CONTEXT`, else a file of the person who runs it. */
export function contextPath(env: Environment): string {
  const { AGENT_HOST_CONTEXT: named, XDG_CONFIG_HOME: config } = env;
  return named || join(config || join(homedir(), '.config'), 'agent-host/context.json');
}

/** Holds a key: only its owner may read it, whatever was there before. */
export async function saveContext(env: Environment, context: Context): Promise<string> {
  const path = contextPath(env);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await writeFile(path, `${JSON.stringify(context, null, 2)}\n`, { mode: 0o600 });
  await chmod(path, 0o600);
  return path;
}

/** @throws StartError when there is none, or it cannot be read */
export async function readContext(env: Environment): Promise<Context> {
  const path = contextPath(env);
  const text = await readIfPresent(path);
  if (text === undefined) throw new StartError(`there is no context at ${path}; agent-host init makes one`);
  const found = contextSchema.safeParse(jsonOf(text));
  if (!found.success) throw new StartError(`${path} is not a context; remove it and run agent-host init`);
  return found.data;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Long enough for a node to be replaced, short for a person who started none. */
const RETRY_MS = 5_000;

export function clientOf({ url, tenant, key }: Pick<Context, 'url' | 'key'> & { readonly tenant?: string }): Client {
  return createClient({ url, tenant, key, retryMs: RETRY_MS });
}

/** Runs a command; a refusal or an unreachable Host is one plain line. @throws StartError */
export async function plainly<T>(url: string, command: () => Promise<T>): Promise<T> {
  try {
    return await command();
  } catch (error) {
    if (error instanceof Problem) throw new StartError(`${error.code}: ${error.message}`, { cause: error });
    if (isUnreachable(error)) throw new StartError(`no Host answers at ${url}; is it started?`, { cause: error });
    throw error;
  }
}

/** What `fetch` throws without an answer, and what a request that took too long is aborted with. */
function isUnreachable(error: unknown): boolean {
  if (error instanceof DOMException) return error.name === 'TimeoutError';
  return error instanceof TypeError && error.message === 'fetch failed';
}
