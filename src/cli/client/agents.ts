import { readFile } from 'node:fs/promises';
import { createTwoFilesPatch } from 'diff';
import { isDeepStrictEqual } from 'node:util';
import { Document, parseAllDocuments, stringify, visit } from 'yaml';
import { z } from 'zod';
import { Problem } from '../../client/client.ts';
import type { Agent, Client, Manifest } from '../../client/client.ts';
import { misuse, StartError } from '../../lib/start-error.ts';
import { numberOf, readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { escapedJson, isObeyed, plainText, styled } from '../terminal.ts';
import { withClient } from './context.ts';
import type { Environment } from './context-file.ts';
import { first, print, table } from './output.ts';
import { isInteractive, isYes, readInput } from './prompt.ts';

const INPUT_BYTES_MAX = 16_777_216;
/** The Host says what is wrong with the members of a manifest. */
const manifestSchema = z.looseObject({ instructions: z.string() });
/** More of what `agents show` and the API say of an agent may be in it, and is left out. */
const documentSchema = z.object({ agentId: z.string(), manifest: manifestSchema });

interface Wanted {
  readonly agentId: string;
  readonly manifest: Manifest;
}

/** `agent-host agents list`. */
export async function agentsList(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('agents list'));
  const limit = numberOf('limit', values.limit ?? '20', { least: 1, whole: true });
  return await withClient(env, values.context, async (client) => {
    const rows = await first(client.agents.list(), limit);
    return print(rows, values.json, () =>
      table(
        ['AGENT', 'VERSION', 'NAME', 'UPDATED'],
        rows.map((one) => [one.agentId, `${one.version}`, one.name ?? '', one.updatedAt]),
      ),
    );
  });
}

/** `agent-host agents show <id>`: as a document that apply takes. */
export async function agentsShow(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('agents show'));
  const id = words[0] ?? misuse('name the agent: agent-host agents show <id>');
  return await withClient(env, values.context, async (client) => {
    const agent = await client.agents.get(id);
    const { agentId, manifest } = agent;
    return print([agent], values.json, () => safeYaml({ agentId, manifest }));
  });
}

/**
 * `agent-host agents apply -f <file>`: shows what differs from the agents as they are, and saves them: a new version where a
 * manifest differs. A person at a terminal is asked before an agent changes that is there.
 */
export async function agentsApply(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('agents apply'));
  const wanted = await wantedOf(values.file, words);
  return await withClient(env, values.context, async (client) => {
    const plan: { one: Wanted; now: Agent | null; differs: boolean }[] = [];
    for (const one of wanted) {
      const now = await agentNow(client, one.agentId);
      plan.push({ one, now, differs: now === null || !isDeepStrictEqual(now.manifest, one.manifest) });
    }
    if (values.json !== true)
      for (const { one, now, differs } of plan) if (differs) process.stdout.write(difference(one, now));
    const changes = plan.filter(({ now, differs }) => now !== null && differs);
    const asks = changes.length > 0 && values['dry-run'] !== true && values.yes !== true && values.json !== true;
    if (asks && isInteractive() && !(await isYes(`Change ${changes.map(({ one }) => one.agentId).join(', ')}?`)))
      throw new StartError('nothing was saved');
    for (const { one, now, differs } of plan)
      await save(client, one, { now, differs, dryRun: values['dry-run'] === true, asJson: values.json });
    return 0;
  });
}

async function save(
  client: Client,
  { agentId, manifest }: Wanted,
  how: { now: Agent | null; differs: boolean; dryRun: boolean; asJson: boolean | undefined },
): Promise<void> {
  const { now, differs, dryRun, asJson } = how;
  if (dryRun) {
    const change = now === null ? 'new' : differs ? 'changed' : 'unchanged';
    print([{ agentId, change, saved: false }], asJson, () => `${plainText(agentId)}: ${change}, not saved\n`);
    return;
  }
  const saved = await client.agents.save(agentId, manifest);
  const { version, manifestHash } = saved;
  const text = `${plainText(agentId)}: version ${version}, ${manifestHash}${differs ? '' : ', unchanged'}\n`;
  print([{ agentId, version, manifestHash, changed: differs }], asJson, () => text);
}

async function agentNow(client: Client, agentId: string): Promise<Agent | null> {
  try {
    return await client.agents.get(agentId);
  } catch (error) {
    if (error instanceof Problem && error.code === 'not_found') return null;
    throw error;
  }
}

/** As YAML, whatever the file is in: lines differ where members do. */
function difference({ agentId, manifest }: Wanted, now: Agent | null): string {
  const [before, after] = [now?.manifest, manifest].map((one) =>
    one === undefined ? '' : stringify(one, { sortMapEntries: true }),
  );
  const names = [now === null ? 'nothing' : `${agentId}, version ${now.version}`, agentId] as const;
  const patch = createTwoFilesPatch(names[0], names[1], before ?? '', after ?? '', undefined, undefined, {
    context: 2,
  });
  const lines = plainText(patch).split('\n').slice(1);
  return lines
    .map((line) => (line.startsWith('+') ? styled('green', line) : line.startsWith('-') ? styled('red', line) : line))
    .join('\n');
}

async function wantedOf(file: string | undefined, words: readonly string[]): Promise<readonly Wanted[]> {
  const [id, positional] = words;
  if (file !== undefined && id === undefined)
    return documentsOf(await textOf(file), file).map((one) => wantedIn(one, file));
  if (file !== undefined && positional !== undefined)
    misuse('name the file once: agent-host agents apply <id> -f <file>');
  const path = file ?? positional;
  if (id === undefined || path === undefined)
    return misuse('name a file: agent-host agents apply -f <file>, or agent-host agents apply <id> <file>');
  const [document, ...more] = documentsOf(await textOf(path), path);
  if (more.length > 0) misuse(`${path} holds several documents; leave out the id, and write agentId into each`);
  // A document of `agents show` names an agent of its own, which the command line overrules.
  const whole = documentSchema.safeParse(document);
  return [{ agentId: id, manifest: whole.success ? whole.data.manifest : bareManifest(document, path) }];
}

function wantedIn(document: unknown, file: string): Wanted {
  const found = documentSchema.safeParse(document);
  if (found.success) return found.data as Wanted;
  throw new StartError(
    `each document of ${file} needs agentId and manifest; with one manifest alone: agents apply <id> ${file}`,
  );
}

function bareManifest(document: unknown, file: string): Manifest {
  const found = manifestSchema.safeParse(document);
  if (found.success) return found.data as Manifest;
  throw new StartError(`${file} holds no manifest: instructions are missing`);
}

async function textOf(file: string): Promise<string> {
  if (file === '-') return await readInput(INPUT_BYTES_MAX);
  return await readFile(file, 'utf8').catch((cause: unknown) => {
    throw new StartError(`${file} cannot be read`, { cause });
  });
}

/** A value as YAML that a terminal shows and does not obey; `agents apply` reads the same value. */
function safeYaml(value: unknown): string {
  const document = new Document(value);
  // Between double quotes YAML has the escapes of JSON.
  visit(document, {
    Scalar: (_, node) => {
      if (typeof node.value === 'string' && isObeyed(node.value)) node.type = 'QUOTE_DOUBLE';
    },
  });
  return escapedJson(document.toString());
}

/** YAML, which JSON is too. Aliases are bounded, so that a small file does not become a large one. */
function documentsOf(text: string, file: string): readonly unknown[] {
  const documents = parseAllDocuments(text, { prettyErrors: true });
  const found = 'empty' in documents ? [] : documents;
  for (const { errors } of found)
    if (errors[0] !== undefined)
      throw new StartError(`${file} is neither YAML nor JSON: ${plainText(errors[0].message)}`);
  if (found.length === 0) throw new StartError(`${file} is empty`);
  return found.map((document): unknown => document.toJS({ maxAliasCount: 100 }));
}
