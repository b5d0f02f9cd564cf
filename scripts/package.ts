import { spawnSync } from 'node:child_process';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { buildLibrary } from './build.ts';

/** `npm pack` runs it: what the package exports, as JavaScript with its types, in `dist`. */
const ROOT = dirname(import.meta.dirname);
const LIBRARY = join(ROOT, 'dist/in-memory');

function run(...argv: readonly string[]): void {
  const { status } = spawnSync(process.execPath, argv, { cwd: ROOT, stdio: ['ignore', 'ignore', 'inherit'] });
  if (status !== 0) throw new Error(`${argv[0] ?? ''} failed`);
}

/**
 * What `index.ts` exports, without what it runs: a declaration made of the program would name every file of the Host.
 */
async function declareLibrary(): Promise<void> {
  const source = await readFile(join(ROOT, 'src/in-memory/index.ts'), 'utf8');
  const declared = source
    .replace(/^import \{ startInMemory \}.*\n/m, '')
    .replace(/^export const (.*?) = async [^;]*;$/ms, 'export declare const $1;')
    .replaceAll("'./types.ts'", "'./types.js'");
  await writeFile(join(LIBRARY, 'index.d.mts'), declared);
}

for (const folder of ['client', 'react', 'in-memory'])
  await rm(join(ROOT, 'dist', folder), { recursive: true, force: true });
run('scripts/client-types.ts');
run('node_modules/typescript/bin/tsc', '-p', 'tsconfig.client.json');
await buildLibrary(LIBRARY);
await declareLibrary();
