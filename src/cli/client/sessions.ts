import { createWriteStream } from 'node:fs';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { misuse } from '../../lib/start-error.ts';
import type { Client, EventRecord } from '../../client/client.ts';
import { numberOf, readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { plainText, safeJson } from '../terminal.ts';
import { transferBar } from './bar.ts';
import { withClient } from './context.ts';
import type { Environment } from './context-file.ts';
import { refusingToOverwrite, untilInterrupted } from './files.ts';
import { first, print, table } from './output.ts';
import { lineOf, short } from './show.ts';

const LIMIT = '20';

function named(words: readonly string[], command: string): string {
  return words[0] ?? misuse(`name the session: agent-host sessions ${command} <id>`);
}

/** `agent-host sessions list`: newest first. */
export async function sessionsList(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('sessions list'));
  const limit = numberOf('limit', values.limit ?? LIMIT, { least: 1, whole: true });
  return await withClient(env, values.context, async (client) => {
    const rows = await first(client.sessions.list(), limit);
    return print(rows, values.json, () =>
      table(
        ['SESSION', 'AGENT', 'STATUS', 'UPDATED'],
        rows.map((one) => [one.id, one.agentId, one.status, one.updatedAt]),
      ),
    );
  });
}

/** `agent-host sessions show <id>`: its history as it is now. */
export async function sessionsShow(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('sessions show'));
  const id = named(words, 'show');
  return await withClient(env, values.context, async (client) => {
    for await (const event of client.session(id).history()) show(event, values.json);
    return 0;
  });
}

/** `agent-host sessions tail <id>`: what happens, until Ctrl-C. */
export async function sessionsTail(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('sessions tail'));
  const id = named(words, 'tail');
  return await withClient(env, values.context, async (client) => {
    return await untilInterrupted(async (signal) => {
      for await (const event of client.session(id).events({ from: values.from ?? 'latest', signal }))
        show(event, values.json);
    });
  });
}

function show(event: EventRecord, asJson: boolean | undefined): void {
  const line = asJson === true ? safeJson(event) : sentOrSaid(event);
  if (line !== null) process.stdout.write(`${line}\n`);
}

function sentOrSaid(event: EventRecord): string | null {
  if (event.type !== 'command.message') return lineOf(event);
  return plainText(`> ${short(event.payload.content ?? event.payload.parts)}`);
}

/** `agent-host sessions fork <id> [new-id]`. */
export async function sessionsFork(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('sessions fork'));
  const id = named(words, 'fork');
  const { cursor } = values;
  return await withClient(env, values.context, async (client) => {
    const forked = await client.session(id).fork(words[1] ?? randomUUID(), cursor === undefined ? {} : { cursor });
    return print([await forked.get()], values.json, () => `${forked.id} continues ${plainText(id)}.\n`);
  });
}

/** `agent-host sessions export <id>`: its history as JSON lines, to standard output or a file that does not exist yet. */
export async function sessionsExport(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('sessions export'));
  const id = named(words, 'export');
  const { out = '-' } = values;
  return await withClient(env, values.context, async (client) => {
    if (out === '-') {
      await writeHistory(client, id, process.stdout);
      return 0;
    }
    const records = await refusingToOverwrite(out, async (path) => {
      const file = createWriteStream(path, { flags: 'wx', mode: 0o600 });
      await once(file, 'open');
      const count = await writeHistory(client, id, file).finally(() => file.end());
      await once(file, 'close');
      return count;
    });
    return print([{ session: id, file: out, records }], values.json, () => `${out}: ${records} records\n`);
  });
}

async function writeHistory(client: Client, id: string, to: NodeJS.WritableStream): Promise<number> {
  const bar = transferBar({ what: id, of: null, unit: (records) => `${records} records` });
  let records = 0;
  for await (const event of client.session(id).history({ limit: 1_000 })) {
    records++;
    bar.add(1);
    if (!to.write(`${safeJson(event)}\n`)) await once(to, 'drain');
  }
  bar.done();
  return records;
}

/** `agent-host inbox`: what people have to answer, oldest first. */
export async function inbox(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('inbox'));
  const limit = numberOf('limit', values.limit ?? LIMIT, { least: 1, whole: true });
  return await withClient(env, values.context, async (client) => {
    const rows = await first(client.inbox(), limit);
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
