import { spawn } from 'node:child_process';
import type { Cluster } from './cluster.ts';
import { PROGRAM } from '../program.ts';

/** Runs `agent-host audit …` as an operator does. */
export async function audit(
  cluster: Cluster,
  what: 'replay' | 'verify',
): Promise<{ code: number | null; text: string }> {
  const env = { ...process.env, ...cluster.environment() };
  const child = spawn(process.execPath, [PROGRAM, 'audit', what], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (text += part.toString()));
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  return { code, text };
}
