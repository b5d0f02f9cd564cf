import { misuse, StartError } from '../../lib/start-error.ts';
import { readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { clientOf, plainly } from './context.ts';
import type { Context, Environment } from './context-file.ts';
import { contextPath, readContext, readContexts, removeContext, saveContext, useContext } from './context-file.ts';
import { print, table } from './output.ts';
import { ask, isInteractive, readSecret } from './prompt.ts';

const AGENT = 'helper';

/** `agent-host login`: checks a key with its Host and remembers it. Returns the exit code. */
export async function login(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('login'));
  if (words.length > 0) misuse('agent-host login takes no words: the key is asked for, or read from standard input');
  const url = (await given('url', values.url)).replace(/\/+$/, '');
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol)) misuse('--url must be an http or https address');
  const tenant = await given('tenant', values.tenant);
  const name = values.context ?? 'default';
  if ((await readContexts(env))?.all.has(name) === true && values.context === undefined)
    throw new StartError(
      `there is a context ${name} already; name another with --context, or name ${name} to replace it`,
    );
  if (isSentInClear(url)) process.stderr.write(`agent-host: ${url} is not https: who is on the way can read the key\n`);
  const key = await readSecret(`Key for ${tenant} at ${url}: `);
  const context: Context = { url, tenant, key, agent: values.agent ?? AGENT };
  const caller = await plainly(url, async () => await clientOf(context).request('GET /v1/me', {}));
  const path = await saveContext(env, name, context);
  const shown = { name, ...withoutKey(context), via: caller.via, context: path };
  return print([shown], values.json, () => `Signed in to ${tenant} as context ${name}. Its key is in ${path}.\n`);
}

async function given(name: 'url' | 'tenant', value: string | undefined): Promise<string> {
  if (value !== undefined && value !== '') return value;
  if (!isInteractive()) misuse(`name the ${name}: agent-host login --url <url> --tenant <id>`);
  return (await ask(name === 'url' ? 'Address of the Host: ' : 'Id of the tenant: ')).trim();
}

function isSentInClear(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'http:' && !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(hostname);
}

/** `agent-host context list`. */
export async function contextList(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('context list'));
  const contexts = await readContexts(env);
  const known = [...(contexts?.all ?? [])].toSorted(([a], [b]) => a.localeCompare(b));
  const rows = known.map(([name, context]) => ({
    name,
    current: name === contexts?.current,
    ...withoutKey(context),
  }));
  return print(rows, values.json, () => {
    if (rows.length === 0) return `No contexts at ${contextPath(env)}; agent-host init or login makes one.\n`;
    const cells = rows.map(({ name, current, url, tenant, agent }) => [current ? '*' : '', name, url, tenant, agent]);
    return table(['', 'CONTEXT', 'HOST', 'TENANT', 'AGENT'], cells);
  });
}

/** `agent-host context show [name]`. */
export async function contextShow(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('context show'));
  const name = words[0] ?? (await readContexts(env))?.current;
  const shown = { name, ...withoutKey(await readContext(env, words[0])), file: contextPath(env) };
  return print([shown], values.json, () =>
    table(
      ['MEMBER', 'VALUE'],
      Object.entries(shown).map(([member, value]) => [member, value ?? '']),
    ),
  );
}

/** `agent-host context use <name>`. */
export async function contextUse(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('context use'));
  const [name] = words;
  if (name === undefined) return misuse('name the context: agent-host context use <name>');
  await useContext(env, name);
  return print([{ name, current: true }], values.json, () => `${name} is the current context.\n`);
}

/** `agent-host context remove <name>`. */
export async function contextRemove(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('context remove'));
  const [name] = words;
  if (name === undefined) return misuse('name the context: agent-host context remove <name>');
  await removeContext(env, name);
  return print([{ name, removed: true }], values.json, () => `${name} is forgotten; its key stays valid.\n`);
}

function withoutKey({ key: _key, ...shown }: Context): Omit<Context, 'key'> {
  return shown;
}
