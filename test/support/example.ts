import { spawn } from 'node:child_process';
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { build } from 'rolldown';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { ROOT } from '../tidy/tree.ts';
import { until } from './wait-until.ts';

const SOON_MS = 120_000;

export interface Program extends AsyncDisposable {
  readonly said: () => string;
  readonly ended: Promise<number | null>;
  readonly type: (line: string) => void;
  readonly signal: (signal: NodeJS.Signals) => void;
}

/** A program of a person; it is killed where the test leaves it running. */
export function start(command: string, args: readonly string[], env: Readonly<Record<string, string>>): Program {
  const child = spawn(command, args, { env: { ...bareEnvironment(), ...env }, stdio: 'pipe' });
  let said = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said += text));
  const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
  return {
    said: () => said,
    ended,
    type: (line) => child.stdin.end(`${line}\n`),
    signal: (signal) => child.kill(signal),
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

export async function says(program: Program, text: string): Promise<void> {
  await until(`it says ${text}`, () => program.said().includes(text), SOON_MS).catch((error: unknown) => {
    throw new Error(`${String(error)}; it said:\n${program.said()}`);
  });
}

/** Makes a directory a project of somebody else, where the package is installed, and others of this checkout beside it. */
export async function installPackage(project: string, others: readonly string[] = []): Promise<void> {
  const { exports: exported } = JSON.parse(await readFile(join(ROOT, 'package.json'), 'utf8'));
  const place = join(project, 'node_modules/agent-runtime-host');
  await mkdir(place, { recursive: true });
  await writeFile(join(place, 'package.json'), JSON.stringify({ type: 'module', exports: exported }));
  for (const [name, source] of [
    ['./client', 'src/client/client.ts'],
    ['./react', 'src/react/use-session.ts'],
  ] as const) {
    const file = join(place, exported[name].default);
    await build({
      input: join(ROOT, source),
      external: ['react'],
      logLevel: 'silent',
      output: { file, format: 'esm' },
    });
  }
  for (const name of others) await symlink(join(ROOT, 'node_modules', name), join(project, 'node_modules', name));
  await writeFile(join(project, 'package.json'), JSON.stringify({ type: 'module' }));
}
