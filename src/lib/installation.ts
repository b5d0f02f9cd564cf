import { existsSync } from 'node:fs';

/**
 * A file or directory that comes with the program, by its path from the root of the installation. The root is where
 * package.json is: above the sources, and above a build of them.
 */
export function installed(path: string): URL {
  let directory = new URL('./', import.meta.url);
  while (!existsSync(new URL('package.json', directory))) {
    const above = new URL('../', directory);
    if (above.href === directory.href) throw new Error('package.json is missing above the program');
    directory = above;
  }
  return new URL(path, directory);
}
