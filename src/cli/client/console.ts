import { createInterface } from 'node:readline';
import type { Config } from '../../app/config.ts';
import { openDoor } from '../../console/server/door.ts';
import type { Door } from '../../console/server/door.ts';
import { readPublished } from '../../embedded/data-dir.ts';
import { hasCode } from '../../lib/files.ts';
import { EXIT, misuse, StartError } from '../../lib/start-error.ts';
import { numberOf, readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { plainLine, safeJson } from '../terminal.ts';
import { adminKeyFor } from './admin-key.ts';
import { plainly, withClient } from './context.ts';
import type { Context, Environment } from './context-file.ts';
import { untilInterrupted } from './files.ts';

const PORT = 7_080;
const PORT_MAX = 65_535;
const LINK_MS = 10_000;

/**
 * `agent-host console`: the pages of a tenant for a browser of this machine, until Ctrl-C. They come from a listener of
 * this process, which passes on what they ask with the key of the context; the key never reaches the browser. Each line
 * on standard input, such as Enter, prints a new link. Returns the exit code.
 * @param directory a build of the pages
 * @throws StartError when the port that was asked for is in use, or the Host refuses the key
 */
export async function showConsole(
  readConfig: () => Promise<Config>,
  env: Environment,
  args: readonly string[],
  directory: string,
): Promise<number> {
  const { values } = readArguments(args, optionsOf('console'));
  if (values.link === true) {
    const link = await newLink(await readConfig(), env);
    process.stdout.write(`${values.json === true ? safeJson({ link }) : `Open ${link}`}\n`);
    return 0;
  }
  const port = values.port === undefined ? undefined : numberOf('port', values.port, { least: 0, whole: true });
  if (port !== undefined && port > PORT_MAX) misuse(`--port is at most ${PORT_MAX}`);
  return await withClient(env, values.context, async (client, context) => {
    await client.request('GET /v1/sessions', { query: { limit: 1 } });
    const door = await openOn(port, context, directory);
    const say = (): void => {
      const link = door.link();
      process.stdout.write(`${values.json === true ? safeJson({ url: door.url, link }) : `Open ${link}`}\n`);
    };
    try {
      if (values.json !== true) {
        const whose = plainLine(`${context.tenant} at ${context.url}`);
        process.stdout.write(`The console of ${whose}. A link signs one browser in, once, within ten minutes.\n`);
      }
      say();
      if (values.json !== true) process.stdout.write('Enter prints another link, Ctrl-C ends the console.\n');
      return await untilStopped(say);
    } finally {
      await door.close();
    }
  });
}

/** Asks the console of the Host that runs on the data directory. @throws StartError */
async function newLink(config: Config, env: Environment): Promise<string> {
  const { dataDir } = config;
  const address = await readPublished(dataDir, 'console-listen');
  const host = await readPublished(dataDir, 'listen');
  if (address === undefined || host === undefined)
    throw new StartError(
      `no Host with a console runs on ${dataDir}; start it, or leave --link out for a console of your own`,
      {
        code: 'unreachable',
        exitCode: EXIT.unreachable,
      },
    );
  const authorization = `Bearer ${await adminKeyFor(`http://${host}`, config, env)}`;
  return await plainly(`http://${address}`, async () => {
    const signal = AbortSignal.timeout(LINK_MS);
    const answer = await fetch(`http://${address}/console/links`, {
      method: 'POST',
      headers: { authorization },
      signal,
    });
    const body: unknown = await answer.json();
    if (typeof body === 'object' && body !== null && 'link' in body) return String(body.link);
    throw new StartError('the console refuses the key of the Host admin; it was started with another one');
  });
}

/** Without a port that was asked for, the usual one, or any when that is taken: one console is not in another's way. */
async function openOn(port: number | undefined, context: Context, directory: string): Promise<Door> {
  const { url, tenant, key } = context;
  const options = { url, authority: { kind: 'tenant', tenant, key }, directory } as const;
  try {
    return await openDoor({ ...options, port: port ?? PORT });
  } catch (error) {
    if (!hasCode(error, 'EADDRINUSE')) throw error;
    if (port === undefined) return await openDoor({ ...options, port: 0 });
    throw new StartError(`port ${port} is in use; name another, or none for any free one`, { cause: error });
  }
}

async function untilStopped(onLine: () => void): Promise<number> {
  const lines = createInterface({ input: process.stdin });
  lines.on('line', onLine);
  try {
    await untilInterrupted(async (signal) => {
      await new Promise<void>((done) => signal.addEventListener('abort', () => done(), { once: true }));
    });
    return 0;
  } finally {
    lines.close();
  }
}
