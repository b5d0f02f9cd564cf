import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { programPath } from './build.ts';

/** `npm start`: builds the program when the sources have changed, in a process of its own, and becomes it. */
const program = programPath();
if (!existsSync(program)) {
  const { status } = spawnSync(process.execPath, [join(import.meta.dirname, 'build.ts')], { stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}
await import(pathToFileURL(program).href);
