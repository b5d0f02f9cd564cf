// Runs one of the project's programs on a fresh clone with nothing but a stock Node 20: installs the dependencies when
// they are missing or out of date, then runs the program with the Node that they bring.
// Plain JavaScript without dependencies, because it runs before there are any.
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { constants as osConstants, tmpdir, userInfo } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { hostFlags } from './node-flags.mjs';

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const MODULES = join(ROOT, 'node_modules');
const STAMP = join(MODULES, '.agent-host-stamp');
const INSTALL_MS = 15 * 60_000;
/** npm passes a signal on to us that the terminal has already given us; a person needs longer for a second one. */
const SAME_SIGNAL_MS = 500;

const PROGRAMS = {
  'agent-host': ['scripts/start.ts'],
  start: ['scripts/start.ts'],
  demo: ['scripts/demo.ts'],
  test: ['scripts/test.mjs'],
  check: ['scripts/check.mjs'],
  lint: ['scripts/check.mjs', 'lint', 'layers', 'dead code', 'format'],
  typecheck: ['scripts/check.mjs', 'types', 'app types'],
  'test:unit': ['scripts/check.mjs', 'unit tests'],
  bench: ['bench/main.ts'],
  chaos: ['test/chaos/main.ts'],
  package: ['scripts/package.ts'],
  pictures: ['scripts/pictures.ts'],
  prices: ['scripts/update-prices.ts'],
  format: ['node_modules/oxfmt/bin/oxfmt', 'src', 'test', 'bench', 'scripts', 'examples'],
};

function say(line) {
  process.stderr.write(`${line}\n`);
}

function fail(line) {
  say(line);
  process.exit(1);
}

function readOr(path, otherwise) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return otherwise;
  }
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function wantedStamp() {
  const lock = createHash('sha256')
    .update(readFileSync(join(ROOT, 'package-lock.json')))
    .digest('hex');
  return `${lock} ${process.platform} ${process.arch}\n`;
}

function isForHere(entry) {
  const fits = (list, mine) => list === undefined || (list.includes(mine) && !list.includes(`!${mine}`));
  return fits(entry.os, process.platform) && fits(entry.cpu, process.arch) && fits(entry.libc, libc());
}

function libc() {
  if (process.platform !== 'linux') return undefined;
  return process.report?.getReport().header.glibcVersionRuntime === undefined ? 'musl' : 'glibc';
}

/** Compares what npm notes as installed with the lockfile, so that an `npm install` by hand is not done again. */
function isInstalled() {
  const stamp = wantedStamp();
  const installedText = readOr(join(MODULES, '.package-lock.json'), undefined);
  if (installedText === undefined) return false;
  if (readOr(STAMP, undefined) === stamp) return true;
  const wanted = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')).packages;
  const installed = JSON.parse(installedText).packages;
  for (const [path, entry] of Object.entries(wanted)) {
    if (path === '') continue;
    const found = installed[path];
    if (found === undefined && entry.optional && !isForHere(entry)) continue;
    if (found?.version !== entry.version || found?.integrity !== entry.integrity) return false;
  }
  writeFileSync(STAMP, stamp);
  return true;
}

/**
 * True when the lockfile names every optional package of every package. One that was written against a registry that
 * lacks some platforms' packages leaves those out, and `npm ci` then refuses it although nothing for here is missing.
 */
function isLockComplete() {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'));
  const has = (path, name) => `${path}/node_modules/${name}` in packages || `node_modules/${name}` in packages;
  return Object.entries(packages).every(([path, entry]) =>
    Object.keys(entry.optionalDependencies ?? {}).every((name) => has(path, name)),
  );
}

/** Which process a pid means, so that a reused pid is not taken for a living claimant. */
function identity(pid) {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error.code === 'ESRCH') return undefined;
  }
  const stat = readOr(`/proc/${pid}/stat`, undefined);
  if (stat === undefined) return 'alive';
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields[0] === 'Z' ? undefined : fields[19];
}

/**
 * Runs `work` while no other run.mjs of this tree does. Every claimant makes a file of its own and then looks for
 * others: two cannot both overlook each other, and a killed one's file is recognised by its pid and start time.
 * (src/embedded/claim.ts does the same for the Host.)
 */
async function exclusively(work) {
  const key = createHash('sha256').update(ROOT).digest('hex').slice(0, 16);
  const directory = join(tmpdir(), `agent-host-install-${userInfo().uid}-${key}`);
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const own = `${process.pid}.${identity(process.pid)}`;
  const release = () => rmSync(join(directory, own), { force: true });
  process.on('exit', release);
  const deadline = Date.now() + INSTALL_MS;
  let told = false;
  for (;;) {
    writeFileSync(join(directory, own), '');
    const others = readdirSync(directory).filter((name) => name !== own);
    const living = others.filter((name) => identity(Number(name.split('.')[0])) === name.split('.')[1]);
    for (const name of others) if (!living.includes(name)) rmSync(join(directory, name), { force: true });
    if (living.length === 0) break;
    release();
    if (Date.now() > deadline)
      fail(`Another process (pid ${living[0].split('.')[0]}) has been installing for too long; end it and try again.`);
    if (!told && others.length > 0) {
      told = true;
      say('Waiting for another process that is installing the dependencies …');
    }
    await pause(50 + Math.random() * 200);
  }
  try {
    return await work();
  } finally {
    release();
  }
}

/** Runs npm to its end, keeping what it says for the case that it fails. */
function npm(args) {
  const path = process.env.npm_execpath;
  const isScript = path !== undefined && /npm-cli\.[cm]?js$/.test(path);
  const [command, first] = isScript ? [process.execPath, [path]] : ['npm', []];
  return new Promise((resolve) => {
    const child = spawn(command, [...first, ...args], { cwd: ROOT, stdio: ['ignore', 'pipe', 'pipe'] });
    let output = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (output += chunk));
    const timer = setTimeout(() => child.kill('SIGTERM'), INSTALL_MS);
    const stop = () => child.kill('SIGTERM');
    process.on('SIGINT', stop).on('SIGTERM', stop);
    const done = (ok, text) => {
      clearTimeout(timer);
      process.off('SIGINT', stop).off('SIGTERM', stop);
      resolve({ ok, output: text });
    };
    child.on('error', (error) => done(false, error.message));
    child.on('close', (code) => done(code === 0, output));
  });
}

async function install() {
  if (isInstalled()) return;
  await exclusively(async () => {
    if (isInstalled()) return;
    const command = isLockComplete() ? ['ci'] : ['install', '--no-save'];
    const what = `Installing the dependencies (npm ${command.join(' ')}) …`;
    say(what);
    const began = performance.now();
    const seconds = () => Math.round((performance.now() - began) / 1000);
    // It may take minutes, and npm says nothing meanwhile.
    const clock = setInterval(() => process.stderr.write(`\r${seconds()} s`), process.stderr.isTTY ? 1_000 : 2 ** 30);
    const { ok, output } = await npm([...command, '--loglevel=error', '--no-fund', '--no-audit']);
    clearInterval(clock);
    if (process.stderr.isTTY) process.stderr.write('\r\u001b[K');
    if (!ok) {
      process.stderr.write(output.endsWith('\n') || output === '' ? output : `${output}\n`);
      fail('npm failed (its output is above); with the network and the registry in reach, run the same command again.');
    }
    writeFileSync(STAMP, wantedStamp());
    say(`Installed the dependencies in ${((performance.now() - began) / 1000).toFixed(1)} s`);
  });
}

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function installedNode() {
  const platform = process.platform === 'win32' ? 'win' : process.platform;
  const file = process.platform === 'win32' ? 'bin/node.exe' : 'bin/node';
  const names = [`node-${platform}-${process.arch}`, `node-bin-${platform}-${process.arch}`];
  const folders = ['node', ...names.map((name) => join('node', 'node_modules', name)), ...names];
  return folders.map((folder) => join(MODULES, folder, file)).find(isExecutable);
}

/** The Node that the package `node` brings; when npm was told to run no install scripts, its script is run here. */
async function findNode() {
  const found = installedNode();
  if (found !== undefined) return found;
  const [major, minor] = process.versions.node.split('.').map(Number);
  if (major > 24 || (major === 24 && minor >= 12)) return process.execPath;
  return exclusively(async () => {
    const folder = join(MODULES, 'node');
    const script = 'installArchSpecificPackage.js';
    if (installedNode() === undefined && existsSync(join(folder, script))) {
      say('Installing Node 26 …');
      const result = spawnSync(process.execPath, [script], { cwd: folder, encoding: 'utf8', timeout: INSTALL_MS });
      if (result.status !== 0) process.stderr.write(`${result.stdout ?? ''}${result.stderr ?? ''}`);
    }
    return (
      installedNode() ??
      fail('The npm package node brought no Node for this platform; run this with Node 24.12 or newer.')
    );
  });
}

/**
 * Runs the program in a process group of its own and passes each signal on once: a terminal's Ctrl-C reaches the whole
 * group and npm passes it on once more, and a second one would mean "at once". Should this process be killed, the
 * reader of the extra pipe sees its end and asks the program to stop.
 */
function run(node, args, { env, cwd }) {
  const guard =
    'self=$$; ( ( read -r line <&3 || kill -s TERM "$self" ) >/dev/null 2>&1 </dev/null & ); exec "$@" 3<&-';
  const isWindows = process.platform === 'win32';
  const [command, argv] = isWindows ? [node, args] : ['/bin/sh', ['-c', guard, 'guard', node, ...args]];
  const stdio = ['inherit', 'inherit', 'inherit', ...(isWindows ? [] : ['pipe'])];
  const child = spawn(command, argv, { cwd, env, stdio, detached: !isWindows });
  const pipe = child.stdio[3];
  pipe?.on('error', () => {});
  let last = 0;
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
    process.on(signal, () => {
      const now = performance.now();
      if (last === 0 || now - last > SAME_SIGNAL_MS) child.kill(signal);
      last = now;
    });
  }
  child.on('error', (error) => fail(`${node} could not be started: ${error.message}`));
  child.on('exit', (code, signal) => {
    const status = code ?? 128 + (osConstants.signals[signal] ?? 0);
    if (pipe) pipe.end('ended\n', () => process.exit(status));
    else process.exit(status);
  });
}

/**
 * `npm start` is the trial on one machine: a stranger who has no provider's key can watch a turn on the fixture model.
 * Only here; the binary's own default stays off. As in the Host, an empty variable counts as absent.
 * Compiling the modules is half of what a start costs: Node keeps the result beside them, for the next start.
 */
function environmentOf(isHost) {
  const { AGENT_HOST_FIXTURE_MODEL: said, NODE_COMPILE_CACHE: cache } = process.env;
  const env = { ...process.env, NODE_COMPILE_CACHE: cache || join(MODULES, '.cache', 'node') };
  return isHost ? { ...env, AGENT_HOST_FIXTURE_MODEL: said || '1' } : env;
}

const [name, ...rest] = process.argv.slice(2);
const program = Object.hasOwn(PROGRAMS, name ?? '') ? PROGRAMS[name] : undefined;
if (program === undefined) fail(`usage: node scripts/run.mjs <${Object.keys(PROGRAMS).join('|')}> [arguments]`);
await install();
const [script, ...fixed] = program;
// What a person names on the command line is where that person stands.
const cwd = name === 'agent-host' ? process.cwd() : ROOT;
const isHost = name === 'start' || (name === 'agent-host' && rest[0] === 'up');
const flags = isHost ? hostFlags() : [];
run(await findNode(), [...flags, join(ROOT, script), ...fixed, ...rest], { env: environmentOf(isHost), cwd });
