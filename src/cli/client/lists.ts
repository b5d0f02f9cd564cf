import { readFile } from 'node:fs/promises';
import { StartError } from '../../lib/start-error.ts';
import { readArguments } from '../arguments.ts';
import { clientOf, plainly, readContext } from './context.ts';
import type { Environment } from './context.ts';
import { lineOf, short, table } from './show.ts';

const LIST_OPTIONS = { json: { type: 'boolean' }, limit: { type: 'string' } } as const;
const LIMIT = 20;

async function first<T>(all: AsyncIterable<T>, count: number): Promise<T[]> {
  const found: T[] = [];
  for await (const one of all) if (found.push(one) === count) break;
  return found;
}

function print(rows: readonly unknown[], asJson: boolean | undefined, asText: () => string): number {
  const json = (): string => rows.map((row) => `${JSON.stringify(row)}\n`).join('');
  process.stdout.write(asJson === true ? json() : asText());
  return 0;
}

/** `agent-host sessions list`: newest first. */
async function sessionsList(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, LIST_OPTIONS);
  const context = await readContext(env);
  return await plainly(context.url, async () => {
    const rows = await first(clientOf(context).sessions.list(), Number(values.limit ?? LIMIT));
    return print(rows, values.json, () =>
      table(
        ['SESSION', 'AGENT', 'STATUS', 'UPDATED'],
        rows.map((one) => [one.id, one.agentId, one.status, one.updatedAt]),
      ),
    );
  });
}

/** `agent-host sessions show <id>`: its history as it is now. */
async function sessionsShow(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, LIST_OPTIONS);
  const [id] = words;
  if (id === undefined) throw new StartError('name the session: agent-host sessions show <id>');
  const context = await readContext(env);
  return await plainly(context.url, async () => {
    for await (const event of clientOf(context).session(id).history()) {
      if (values.json === true) process.stdout.write(`${JSON.stringify(event)}\n`);
      else {
        const said =
          event.type === 'command.message' ? `> ${short(event.payload.content ?? event.payload.parts)}` : lineOf(event);
        if (said !== null) process.stdout.write(`${said}\n`);
      }
    }
    return 0;
  });
}

/** `agent-host inbox`: what people have to answer, oldest first. */
async function inbox(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, LIST_OPTIONS);
  const context = await readContext(env);
  return await plainly(context.url, async () => {
    const rows = await first(clientOf(context).inbox(), Number(values.limit ?? LIMIT));
    return print(rows, values.json, () =>
      table(
        ['INTERACTION', 'KIND', 'SESSION', 'WHAT'],
        rows.map((one) => [
          one.interactionId,
          one.kind,
          one.sessionId,
          one.kind === 'approval' ? `${one.toolName ?? ''} ${short(one.input)}` : (one.prompt ?? ''),
        ]),
      ),
    );
  });
}

/** `agent-host usage`: what model calls used in the last 30 days, by model. */
async function usage(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, LIST_OPTIONS);
  const context = await readContext(env);
  return await plainly(context.url, async () => {
    const report = await clientOf(context).request('GET /v1/tenant/usage', { query: { groupBy: 'model' } });
    const rows = [...report.groups, { key: 'total', ...report.total }];
    return print(rows, values.json, () =>
      table(
        ['MODEL', 'CALLS', 'TOKENS', 'USD'],
        rows.map(({ key, calls, usage: used }) => [key, `${calls}`, `${used.totalTokens}`, used.costUsd.toFixed(4)]),
      ),
    );
  });
}

/** `agent-host agents apply <id> <file>`: saves the manifest of a JSON file; a new version when it differs. */
async function agentsApply(env: Environment, args: readonly string[]): Promise<number> {
  const { words } = readArguments(args, {});
  const [id, file] = words;
  if (id === undefined || file === undefined)
    throw new StartError('name the agent and a file with its manifest: agent-host agents apply <id> <file>');
  const context = await readContext(env);
  const manifest = await manifestOf(file);
  return await plainly(context.url, async () => {
    const { version, manifestHash } = await clientOf(context).agents.save(id, manifest);
    process.stdout.write(`${id}: version ${version}, ${manifestHash}\n`);
    return 0;
  });
}

async function manifestOf(file: string): Promise<{ instructions: string }> {
  const text = await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new StartError(`${file} cannot be read`, { cause });
  });
  try {
    // The Host says what is wrong with its members.
    return JSON.parse(text);
  } catch (cause) {
    throw new StartError(`${file} is not JSON`, { cause });
  }
}

/** The commands of this file, by their words. */
export const LISTS = {
  'sessions list': sessionsList,
  'sessions show': sessionsShow,
  inbox,
  usage,
  'agents apply': agentsApply,
} as const;
