import { createWriteStream, openAsBlob } from 'node:fs';
import { stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { Writable } from 'node:stream';
import type { Client, Download } from '../../client/client.ts';
import { misuse, StartError } from '../../lib/start-error.ts';
import { numberOf, readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { plainText } from '../terminal.ts';
import { counted, transferBar } from './bar.ts';
import { withClient } from './context.ts';
import type { Environment } from './context-file.ts';
import { refusingToOverwrite, untilInterrupted } from './files.ts';
import { first, print, sizeText, table } from './output.ts';

function named(words: readonly string[], command: string): string {
  return words[0] ?? misuse(`name the artifact: agent-host artifacts ${command} <id>`);
}

function versionOf(name: string, text: string | undefined): number | undefined {
  return text === undefined ? undefined : numberOf(name, text, { least: 1, whole: true });
}

/** `agent-host artifacts list`: oldest first. */
export async function artifactsList(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('artifacts list'));
  const limit = numberOf('limit', values.limit ?? '20', { least: 1, whole: true });
  return await withClient(env, values.context, async (client) => {
    const rows = await first(client.artifacts.list({ sessionId: values.session }), limit);
    return print(rows, values.json, () =>
      table(
        ['ARTIFACT', 'KIND', 'NAME', 'VERSION', 'SESSION', 'UPDATED'],
        rows.map((one) => [
          one.artifactId,
          one.kind,
          one.name,
          `${one.latestVersion}`,
          one.sessionId ?? '',
          one.updatedAt,
        ]),
      ),
    );
  });
}

/** `agent-host artifacts versions <id>`. */
export async function artifactsVersions(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('artifacts versions'));
  const id = named(words, 'versions');
  return await withClient(env, values.context, async (client) => {
    const { versions = [] } = await client.artifacts.get(id);
    return print(versions, values.json, () =>
      table(
        ['VERSION', 'SIZE', 'TYPE', 'SOURCE', 'CREATED', 'SHA-256'],
        versions.map((one) => [
          ...[`${one.version}`, sizeText(one.size), one.contentType, one.source, one.createdAt, one.sha256],
        ]),
      ),
    );
  });
}

/** `agent-host artifacts get <id>`. */
export async function artifactsGet(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('artifacts get'));
  const id = named(words, 'get');
  const version = versionOf('version', values.version);
  return await withClient(env, values.context, async (client) => {
    const { path, json } = values;
    const name = values.out ?? nameFor(path ?? (await client.artifacts.get(id)).name);
    const download = await client.artifacts.download(id, { version, path });
    return await save(download, { name, id, json });
  });
}

/** `agent-host artifacts zip <id>`. */
export async function artifactsZip(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('artifacts zip'));
  const id = named(words, 'zip');
  const version = versionOf('version', values.version);
  return await withClient(env, values.context, async (client) => {
    const name = values.out ?? `${nameFor((await client.artifacts.get(id)).name)}.zip`;
    return await save(await client.artifacts.zip(id, { version }), { name, id, json: values.json });
  });
}

/** The name of an artifact is an other's word: it names no folder, and no hidden file. */
function nameFor(name: string): string {
  const safe = basename(plainText(name).replaceAll('\\', '/')).replaceAll(/^\.+|[\n\t]/g, '');
  return safe === '' ? 'artifact' : safe;
}

async function save(
  download: Download,
  { name, id, json }: { readonly name: string; readonly id: string; readonly json: boolean | undefined },
): Promise<number> {
  if (name === '-' && process.stdout.isTTY)
    throw new StartError('bytes are not written to a terminal; name a file with --out, or pipe them on');
  const bar = transferBar({ what: id, of: download.size });
  let bytes = 0;
  const stream = counted(download.stream, (more) => {
    bytes += more;
    bar.add(more);
  });
  if (name === '-') {
    for await (const chunk of stream) process.stdout.write(chunk);
    return 0;
  }
  const code = await untilInterrupted(async (signal) => {
    await refusingToOverwrite(name, async (path) => {
      await stream.pipeTo(Writable.toWeb(createWriteStream(path, { flags: 'wx' })), { signal });
    });
  }).finally(() => bar.done());
  if (code !== 0) return code;
  return print([{ artifactId: id, file: name, bytes }], json, () => `${name}: ${sizeText(bytes)}\n`);
}

/** `agent-host artifacts put <file>`. */
export async function artifactsPut(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('artifacts put'));
  const file = words[0] ?? misuse('name the file: agent-host artifacts put <file>');
  const labels = Object.fromEntries((values.label ?? []).map(labelOf));
  if (
    values.of !== undefined &&
    (values.session !== undefined || values.label !== undefined || values.name !== undefined)
  )
    misuse('a further version has the name, the session and the labels of its artifact');
  const found = await stat(file).catch((cause: unknown) => {
    throw new StartError(`${file} cannot be read`, { cause });
  });
  if (!found.isFile()) throw new StartError(`${file} is not a file`);
  return await withClient(env, values.context, async (client) => {
    const bar = transferBar({ what: basename(file), of: found.size });
    const stream = counted((await openAsBlob(file)).stream(), bar.add);
    const { type: contentType, of, session: sessionId } = values;
    const uploaded = await (
      of === undefined
        ? client.artifacts.upload(values.name ?? basename(file), stream, { contentType, sessionId, labels })
        : client.artifacts.uploadVersion(of, stream, { contentType })
    ).finally(bar.done);
    const { artifact, version } = uploaded;
    return print([uploaded], values.json, () => {
      return `${artifact.artifactId}: version ${version.version}, ${sizeText(version.size)}\n`;
    });
  });
}

function labelOf(pair: string): readonly [string, string] {
  const at = pair.indexOf('=');
  return at > 0 ? [pair.slice(0, at), pair.slice(at + 1)] : misuse('a label is key=value');
}

/** `agent-host artifacts diff <id> [from] [to]`. Returns the exit code. */
export async function artifactsDiff(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('artifacts diff'));
  const id = named(words, 'diff');
  const [from, to] = [versionOf('from', words[1]), versionOf('to', words[2])];
  return await withClient(env, values.context, async (client) => {
    const found = await difference(client, id, { from, to });
    const rows = [
      ...found.removed.map(({ path, size }) => ['-', path, sizeText(size)]),
      ...found.added.map(({ path, size }) => ['+', path, sizeText(size)]),
      ...found.changed.map((one) => ['~', one.path, `${sizeText(one.from.size)} → ${sizeText(one.to.size)}`]),
    ];
    return print([found], values.json, () =>
      rows.length === 0 ? 'No file differs.\n' : table(['', 'FILE', 'SIZE'], rows),
    );
  });
}

async function difference(
  client: Client,
  artifactId: string,
  { from, to }: { from?: number | undefined; to?: number | undefined },
) {
  const version = `${to ?? 'latest'}`;
  return await client.request('GET /v1/artifacts/{artifactId}/versions/{version}/diff', {
    params: { artifactId, version },
    query: { from: from === undefined ? undefined : `${from}` },
  });
}
