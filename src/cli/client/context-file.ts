import { mkdir, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import { readIfPresent, writeAtomically } from '../../lib/files.ts';
import { EXIT, misuse, StartError } from '../../lib/start-error.ts';

/** Which Host and tenant client commands talk to, and with which key. */
const contextSchema = z.object({ url: z.string(), tenant: z.string(), key: z.string(), agent: z.string() });
export type Context = z.infer<typeof contextSchema>;

const NAME = /^[\w.-]{1,64}$/;
/** The current context is what the file is: a program that needs one reads `url`, `tenant` and `key`. */
const fileSchema = contextSchema.extend({
  name: z.string().regex(NAME).default('default'),
  others: z.record(z.string().regex(NAME), contextSchema).default({}),
});

/** All contexts, and which of them is the current one. */
export interface Contexts {
  readonly current: string;
  readonly all: ReadonlyMap<string, Context>;
}

/** The environment that these commands use. */
export type Environment = Readonly<Record<string, string | undefined>>;

/** The program as the person called it: in a checkout it is not on the path, and npx starts it. */
export function programName(env: Environment): string {
  return env['npm_command'] === 'exec' ? 'npx agent-host' : 'agent-host';
}

/** `AGENT_HOST_CONTEXT`, else a file of the person who runs it. */
export function contextPath(env: Environment): string {
  const { AGENT_HOST_CONTEXT: named, XDG_CONFIG_HOME: config } = env;
  return named || join(config || join(homedir(), '.config'), 'agent-host/context.json');
}

/** @throws StartError when the file cannot be read as contexts */
export async function readContexts(env: Environment): Promise<Contexts | null> {
  const path = contextPath(env);
  const text = await readIfPresent(path);
  if (text === undefined) return null;
  const found = fileSchema.safeParse(jsonOf(text));
  if (!found.success)
    throw new StartError(`${path} holds no contexts; remove it and run agent-host init or login`, {
      exitCode: EXIT.notSignedIn,
      code: 'context_invalid',
    });
  const { name, others, ...current } = found.data;
  return { current: name, all: new Map([[name, current], ...Object.entries(others)]) };
}

/** The context of that name, or the current one. @throws StartError when there is none */
export async function readContext(env: Environment, name?: string): Promise<Context> {
  const contexts = await readContexts(env);
  const context = contexts?.all.get(name ?? contexts.current);
  if (context !== undefined) return context;
  const message =
    contexts === null || name === undefined
      ? `there is no context at ${contextPath(env)}; ${programName(env)} init makes one, ${programName(env)} login takes a key`
      : `there is no context ${name}; there are ${[...contexts.all.keys()].join(', ')}`;
  throw new StartError(message, { exitCode: EXIT.notSignedIn, code: 'context_missing' });
}

/** Adds a context, or replaces it, and makes it the current one. Returns where it is. @throws StartError for its name */
export async function saveContext(env: Environment, name: string, context: Context): Promise<string> {
  if (!NAME.test(name)) misuse('the name of a context has 1 to 64 letters, digits, dots, dashes and underscores');
  const all = new Map((await readContexts(env))?.all).set(name, context);
  return await write(env, { current: name, all });
}

/** @throws StartError when there is no such context */
export async function useContext(env: Environment, name: string): Promise<void> {
  await readContext(env, name);
  const contexts = await readContexts(env);
  if (contexts !== null) await write(env, { ...contexts, current: name });
}

/** @throws StartError when there is no such context, or it is the current one of several */
export async function removeContext(env: Environment, name: string): Promise<void> {
  await readContext(env, name);
  const contexts = await readContexts(env);
  if (contexts === null) return;
  const all = new Map(contexts.all);
  all.delete(name);
  if (all.size === 0) await rm(contextPath(env));
  else if (contexts.current === name)
    throw new StartError(`${name} is the current context; agent-host context use makes another the current one`);
  else await write(env, { ...contexts, all });
}

/** It holds keys: only its owner may read it, whatever was there before. */
async function write(env: Environment, { current, all }: Contexts): Promise<string> {
  const path = contextPath(env);
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const others = Object.fromEntries([...all].filter(([name]) => name !== current));
  const text = JSON.stringify({ name: current, ...all.get(current), others }, null, 2);
  await writeAtomically(path, `${text}\n`, 0o600);
  return path;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
