import { spawn } from 'node:child_process';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { PROGRAM } from './program.ts';

export interface Ended {
  readonly code: number | null;
  /** Both streams. */
  readonly text: string;
}

/** Runs a command of `agent-host` to its end, as an operator would. Nothing of the surroundings configures it by accident. */
export async function agentHost(env: Readonly<Record<string, string>>, ...args: string[]): Promise<Ended> {
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    env: { ...bareEnvironment(['NODE_COMPILE_CACHE']), ...env },
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (text += part.toString()));
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  return { code, text };
}
