import { spawnSync } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';

/** `npm pack` runs it: what the package exports, as JavaScript with its types, in `dist`. */
const ROOT = dirname(import.meta.dirname);

function run(...argv: readonly string[]): void {
  const { status } = spawnSync(process.execPath, argv, { cwd: ROOT, stdio: ['ignore', 'ignore', 'inherit'] });
  if (status !== 0) throw new Error(`${argv[0] ?? ''} failed`);
}

await rm(join(ROOT, 'dist/client'), { recursive: true, force: true });
run('scripts/client-types.ts');
run('node_modules/typescript/bin/tsc', '-p', 'tsconfig.client.json');
