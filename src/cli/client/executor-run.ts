import { randomBytes } from 'node:crypto';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Handler } from '../../client/client.ts';
import { misuse, StartError } from '../../lib/start-error.ts';
import { numberOf, readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { plainLine, safeJson } from '../terminal.ts';
import { clientOf, withClient } from './context.ts';
import type { Environment } from './context-file.ts';
import { untilInterrupted } from './files.ts';

const CONCURRENCY = '10';
const CONCURRENCY_MAX = 100;
const TOKEN_BYTES = 32;
type Handlers = Readonly<Record<string, Handler>>;

/**
 * `agent-host executor run <file.ts> [agent]`: the functions that a module exports are the tools of an agent by their names,
 * and one named `hook` runs its hooks. Ends with Ctrl-C, after what runs is done; a second one ends it at once.
 */
export async function executorRun(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('executor run'));
  const file = words[0] ?? misuse('name a file with functions: agent-host executor run <file.ts> [agent]');
  const concurrency = numberOf('concurrency', values.concurrency ?? CONCURRENCY, { least: 1, whole: true });
  if (concurrency > CONCURRENCY_MAX) misuse(`--concurrency is at most ${CONCURRENCY_MAX}`);
  const kept = values['keep-token'] === true ? env['AGENT_HOST_EXECUTOR_TOKEN'] : undefined;
  if (values['keep-token'] === true && !kept) misuse('--keep-token needs AGENT_HOST_EXECUTOR_TOKEN');
  const { hook, ...handlers } = await handlersOf(file);
  const say = (line: object, text: string): void =>
    void process.stdout.write(`${values.json === true ? safeJson(line) : plainLine(text)}\n`);
  return await withClient(env, values.context, async (client, context) => {
    const agentId = words[1] ?? context.agent;
    const token = kept ?? randomBytes(TOKEN_BYTES).toString('base64url');
    if (kept === undefined) await client.request('PUT /v1/executors', { body: { executors: [{ agentId, token }] } });
    const said = Object.fromEntries(Object.entries(handlers).map(([name, run]) => [name, saying(name, run, say)]));
    const executor = clientOf({ ...context, key: token }).executor(agentId, said, {
      concurrency,
      hook,
      onError: (error) => process.stderr.write(`agent-host: ${plainLine(String(error))}\n`),
    });
    const names = Object.keys(handlers);
    say({ agentId, tools: names }, `Runs ${names.join(', ')} for ${agentId}. Ctrl-C stops it.`);
    await untilInterrupted(async (signal) => {
      const stopped = new Promise<void>((done) => signal.addEventListener('abort', () => done(), { once: true }));
      await Promise.race([executor.done, stopped]);
    });
    await executor.stop();
    return 0;
  });
}

/** Each action is a line when it ends. */
function saying(name: string, run: Handler, say: (line: object, text: string) => void): Handler {
  return async (input, context) => {
    const { actionId } = context.action;
    try {
      const output: unknown = await run(input, context);
      say({ actionId, tool: name, outcome: 'completed' }, `${actionId} ${name} completed`);
      return output;
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      say({ actionId, tool: name, outcome: 'not_completed', message }, `${actionId} ${name}: ${message}`);
      throw error;
    }
  };
}

/** The functions of a module: those of its `tools`, else of its default export, else all that it exports. */
async function handlersOf(file: string): Promise<Handlers & { readonly hook?: Handler }> {
  let module: Readonly<Record<string, unknown>>;
  try {
    module = await import(pathToFileURL(resolve(file)).href);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new StartError(`${file} cannot be loaded: ${plainLine(why)}`, { cause });
  }
  const named: unknown = module['tools'] ?? module['default'] ?? module;
  const found = Object.entries(Object(named)).filter(
    (pair): pair is [string, Handler] => typeof pair[1] === 'function',
  );
  if (found.length === 0) throw new StartError(`${file} exports no functions`);
  return Object.fromEntries(found);
}
