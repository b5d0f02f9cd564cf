import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { access, mkdir, mkdtemp, rename, rm, symlink } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { runCommand } from '#src/embedded/run-command.ts';

/** The S3 server of the tests: moto, a Python package that speaks the protocol over HTTP. */
const VERSION = '5.2.1';
const INSTALL_MS = 600_000;

/**
 * One that is on the machine, else one in the cache, else from the package index into the cache; nothing is installed.
 * None is run to find out whether it is there: on a busy machine that takes Python half a minute.
 */
export async function findS3Server(report: (line: string) => void = () => undefined): Promise<string> {
  const given = process.env['MOTO_SERVER_BIN'];
  if (given !== undefined) return given;
  const cache = process.env['XDG_CACHE_HOME'] ?? join(homedir() || tmpdir(), '.cache');
  const cached = join(cache, 'agent-runtime-host', `moto-${VERSION}-whole`);
  const directories = [...(process.env['PATH'] ?? '').split(delimiter), join(cached, 'bin')];
  for (const directory of directories.filter((one) => one !== '')) {
    const binary = join(directory, 'moto_server');
    if (await exists(binary)) return binary;
  }
  report(`Fetching moto ${VERSION}, the S3 server of the tests …`);
  await install(cached);
  return join(cached, 'bin', 'moto_server');
}

/** Which package index there is, and how it is reached, is often in the environment. */
function environment(): Record<string, string> {
  return Object.fromEntries(Object.entries(process.env).filter((one): one is [string, string] => one[1] !== undefined));
}

async function exists(file: string): Promise<boolean> {
  return await access(file).then(
    () => true,
    () => false,
  );
}

/** Into a directory of its own, as others may do the same, to which the name is a link once it is whole. */
async function install(name: string): Promise<void> {
  await mkdir(dirname(name), { recursive: true });
  const directory = await mkdtemp(`${name}-`);
  const env = environment();
  const steps = [
    ['python3', '-m', 'venv', directory],
    [join(directory, 'bin', 'pip'), 'install', '--quiet', `moto[server,s3]==${VERSION}`],
  ] as const;
  for (const [file, ...args] of steps) {
    const { failure } = await runCommand(file, args, { timeoutMs: INSTALL_MS, env });
    if (failure === undefined) continue;
    await rm(directory, { recursive: true, force: true });
    throw new Error(
      `the S3 server of the tests cannot be had (${file}: ${failure}); set MOTO_SERVER_BIN to a moto_server of ${VERSION}`,
    );
  }
  const link = `${directory}-link`;
  await symlink(directory, link);
  await rename(link, name);
}

export interface RunningServer {
  readonly port: number;
  readonly stop: () => Promise<void>;
}

const START_MS = 120_000;

/** Starts it on a free port, or on the one that is named. */
export async function runS3Server(port = 0): Promise<RunningServer> {
  const binary = await findS3Server();
  const args = ['-H', '127.0.0.1', '-p', String(port)];
  const child = spawn(binary, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, PYTHONUNBUFFERED: '1' },
  });
  const started = await listening(child);
  // What it goes on to say of each request has to be taken, or it stands still.
  for (const stream of [child.stdout, child.stderr]) stream.resume();
  return {
    port: started,
    stop: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await ended;
    },
  };
}

async function listening(child: ChildProcess): Promise<number> {
  return await new Promise<number>((resolve, reject) => {
    let said = '';
    const fail = (why: string): void => reject(new Error(`the S3 server ${why}; it said ${said.slice(-1_000)}`));
    const timer = setTimeout(() => fail(`does not listen within ${START_MS} ms`), START_MS);
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        said += text;
        const port = /Running on http:\/\/127\.0\.0\.1:(\d+)/.exec(said)?.[1];
        if (port === undefined) return;
        clearTimeout(timer);
        resolve(Number(port));
      });
    }
    child.once('error', (error) => fail(error.message));
    child.once('exit', () => fail('ended'));
  });
}
