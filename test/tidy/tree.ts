import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

/** The repository, as the tidy tests read it: they look at files, never at a running program. */
export const ROOT = path.resolve(import.meta.dirname, '../..');

const NEVER = new Set(['node_modules', '.git', '.data', 'coverage']);

function walk(folder: string): string[] {
  if (!existsSync(path.join(ROOT, folder))) return [];
  return readdirSync(path.join(ROOT, folder), { withFileTypes: true }).flatMap((entry) => {
    if (NEVER.has(entry.name)) return [];
    const file = path.posix.join(folder, entry.name);
    if (entry.isDirectory()) return walk(file);
    return entry.isFile() ? [file] : [];
  });
}

/** Every .ts and .tsx file under the given folders, relative to the root; a folder that does not exist has none. */
export function sources(...folders: string[]): string[] {
  return folders.flatMap((folder) => walk(folder)).filter((file) => /\.tsx?$/.test(file));
}

/** Every file that is or is about to be committed. A tree without git (an unpacked archive) counts as a whole. */
export function committable(): string[] {
  if (!existsSync(path.join(ROOT, '.git'))) return walk('.');
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: ROOT,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  return listed.split('\0').filter((file) => file !== '' && existsSync(path.join(ROOT, file)));
}

export function read(file: string): string {
  return readFileSync(path.join(ROOT, file), 'utf8');
}

export function topLevelOfSrc(): string[] {
  return readdirSync(path.join(ROOT, 'src'));
}

/** `file:line: text` for each line that matches, so that a failing test says where to look. */
export function hits(files: readonly string[], pattern: RegExp): string[] {
  return files.flatMap((file) =>
    read(file)
      .split('\n')
      .flatMap((line, index) => (pattern.test(line) ? [`${file}:${index + 1}: ${line.trim().slice(0, 120)}`] : [])),
  );
}

/** What a module imports, re-exports or loads, as written. */
export function importsOf(file: string): string[] {
  const text = read(file);
  const statements = text.matchAll(
    /^\s*(?:import|export)\b[^;'"]*?\bfrom\s*['"]([^'"]+)['"]|^\s*import\s*['"]([^'"]+)['"]/gm,
  );
  const calls = text.matchAll(/\b(?:import|require)\(\s*['"]([^'"]+)['"]/g);
  return [...statements, ...calls].flatMap((match) => match[1] ?? match[2] ?? []);
}
