import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Cluster } from './cluster.ts';

const MAIN = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));

/** Runs `agent-host audit …` as an operator does. */
export async function audit(
  cluster: Cluster,
  what: 'replay' | 'verify',
): Promise<{ code: number | null; text: string }> {
  const env = { ...process.env, ...cluster.environment() };
  const child = spawn(process.execPath, [MAIN, 'audit', what], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (text += part.toString()));
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  return { code, text };
}
