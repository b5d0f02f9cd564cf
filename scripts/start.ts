import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { programPath } from './build.ts';

/**
 * `npm start`: builds the program when the sources have changed, in a process of its own, and becomes it. Where nothing
 * can be built (a tree that is read-only, an installation without development packages) it becomes the sources.
 */
const built = programPath();
if (!existsSync(built)) {
  const { status } = spawnSync(process.execPath, [join(import.meta.dirname, 'build.ts')], { stdio: 'inherit' });
  if (status !== 0) process.stderr.write('The program could not be built (see above); running its sources.\n');
}
const program = existsSync(built) ? built : join(import.meta.dirname, '../src/main.ts');
await import(pathToFileURL(program).href);
