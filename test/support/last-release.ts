import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = path.resolve(import.meta.dirname, '../..');

/** The commit that the last release was made of, as `test/upgrade/last-release` names it. */
function lastRelease(): string {
  return readFileSync(path.join(ROOT, 'test/upgrade/last-release'), 'utf8').trim();
}

/** Runs git in this repository. @throws when it fails */
function git(...args: readonly string[]): string {
  return execFileSync('git', [...args], { cwd: ROOT, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024, stdio: 'pipe' });
}

/** A history that was cut off says nothing about upgrades: whoever has one has to fetch the rest. @throws */
export function requireLastRelease(commit = lastRelease()): string {
  try {
    git('cat-file', '-e', `${commit}^{commit}`);
  } catch (cause) {
    const where = 'which test/upgrade/last-release names as the last release';
    throw new Error(`The commit ${commit}, ${where}, is not in this repository. Fetch it: git fetch --unshallow`, {
      cause,
    });
  }
  return commit;
}

/** What the code of the last release uses, for whoever wants to take something away. */
export interface UsedByRelease {
  readonly version: readonly [major: number, minor: number];
  readonly usesSchema: (name: string) => boolean;
}

/** As its package.json says it. */
export function releasedVersion(): string {
  const manifest: unknown = JSON.parse(git('show', `${requireLastRelease()}:package.json`));
  return typeof manifest === 'object' && manifest !== null && 'version' in manifest ? String(manifest.version) : '';
}

export function usedByLastRelease(): UsedByRelease {
  const commit = requireLastRelease();
  const [, major = '0', minor = '0'] = /^(\d+)\.(\d+)/.exec(releasedVersion()) ?? [];
  return {
    version: [Number(major), Number(minor)],
    usesSchema: (name) => schemasOf(commit)?.includes(name) ?? mentions(commit, name),
  };
}

/** Null: the release names its schemas in every statement. */
function schemasOf(commit: string): readonly string[] | null {
  try {
    const text = git('show', `${commit}:src/projections/schemas.ts`);
    const [, list = ''] = /SCHEMAS = \{([^}]*)\}/.exec(text) ?? [];
    return [...list.matchAll(/: '([^']+)'/g)].map(([, schema = '']) => schema);
  } catch {
    return null;
  }
}

function mentions(commit: string, name: string): boolean {
  try {
    return git('grep', '-lwF', name, commit, '--', 'src/projections').trim() !== '';
  } catch {
    // git grep ends with 1 when it finds nothing.
    return false;
  }
}
