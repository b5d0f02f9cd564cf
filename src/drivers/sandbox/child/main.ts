import { readSync, writeSync } from 'node:fs';
import { Bash } from 'just-bash';
import { WORKSPACE } from '../../../domain/sandbox/paths.ts';
import { BODY_BYTES_MAX, frame, FrameReader, HEADER_BYTES_MAX } from '../frames.ts';
import type { Frame } from '../frames.ts';
import type { FileSource, FromChild, RunMessage, ToChild, WebMessage } from '../messages.ts';
import { boundedOutput } from '../output.ts';
import { pythonCommands } from './python.ts';
import { sqliteCommand } from './sqlite.ts';
import { Tree, walk } from './tree.ts';
import type { FileNode, Node } from './tree.ts';
import { WorkspaceFs } from './workspace-fs.ts';

/**
 * The program of a child: runs one script at a time over files in memory, and asks the Host, which it knows as a pipe, for
 * everything else. It has no rights, so whatever a script does to this process stays here, and ends with it.
 */
const MIB = 1_048_576;
/** Output that a script may hold before it is cut, and a text that it may build, bytes. */
const LIMITS = {
  maxOutputSize: 32 * MIB,
  maxStringLength: 32 * MIB,
  maxLiveBytes: 192 * MIB,
  maxHeredocSize: 32 * MIB,
};

const [input, output] = [process.stdin, process.stdout];
const reader = new FrameReader({ headerBytesMax: HEADER_BYTES_MAX, bodyBytesMax: BODY_BYTES_MAX });
/** What waits for an answer from the Host. */
interface Content {
  readonly resolve: (bytes: Uint8Array) => void;
  readonly bytes: Promise<Uint8Array>;
  arrived: Uint8Array | null;
}
const contents = new Map<number, Content>();
const requests = new Map<number, (answer: { header: WebMessage; body: Uint8Array }) => void>();
let requestsMade = 0;

function send(message: FromChild, body?: Uint8Array): void {
  for (const part of frame(message, body)) output.write(part);
}

function asked(given: number): Content {
  let waiting = contents.get(given);
  if (waiting === undefined) {
    const { promise: bytes, resolve } = Promise.withResolvers<Uint8Array>();
    waiting = { resolve, bytes, arrived: null };
    contents.set(given, waiting);
    send({ type: 'read', file: given });
  }
  return waiting;
}

/** A pipe that is read from while nothing else can happen in this process: it says at once that it is empty. */
const PAUSE_MS = 1;
const CHUNK_BYTES = 65_536;
const never = new Int32Array(new SharedArrayBuffer(4));
const { wait } = Atomics;

/** The same for a program that cannot wait for a promise. */
function readNow(given: number): Uint8Array {
  const waiting = asked(given);
  while (waiting.arrived === null) {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    try {
      const length = readSync(0, chunk);
      if (length === 0) process.exit(0);
      receive(chunk.subarray(0, length));
    } catch (error) {
      if (!(error instanceof Error && 'code' in error && error.code === 'EAGAIN')) throw error;
      wait(never, 0, 0, PAUSE_MS);
    }
  }
  return waiting.arrived;
}

/** A program has met the limit of memory: the process ends, and its last words say why. */
function endForMemory(): never {
  writeSync(2, 'a program needs more memory than it may have\n');
  return process.exit(FAULT);
}
const FAULT = 134;

interface FetchOptions {
  readonly followRedirects?: boolean;
  readonly method?: string;
  readonly headers?: ConstructorParameters<typeof Headers>[0];
  readonly body?: string | Uint8Array | null;
}

const REDIRECTS = new Set([301, 302, 303, 307, 308]);
const REDIRECTS_MAX = 20;

/** The Host follows no redirect: each step is a request of its own, which it allows or not. */
async function webFetch(from: string, options: FetchOptions = {}) {
  let [url, request] = [from, options];
  for (let steps = 0; ; steps++) {
    const answer = await webRequest(url, request);
    const { location } = answer.headers;
    if (options.followRedirects === false || location === undefined || !REDIRECTS.has(answer.status)) return answer;
    if (steps === REDIRECTS_MAX) throw new Error(`there are more than ${REDIRECTS_MAX} redirects`);
    const next = new URL(location, url);
    const headers = new Headers(request.headers);
    // As browsers and curl do: what is meant for one server is not sent to another.
    if (next.origin !== new URL(url).origin) for (const name of ['authorization', 'cookie']) headers.delete(name);
    const isKept = answer.status >= 307 || request.method === 'HEAD' || request.method === 'GET';
    request = isKept ? { ...request, headers } : { headers };
    url = next.href;
  }
}

async function webRequest(url: string, options: FetchOptions) {
  const { promise, resolve } = Promise.withResolvers<{ header: WebMessage; body: Uint8Array }>();
  const request = requestsMade++;
  requests.set(request, resolve);
  const headers = Object.fromEntries(new Headers(options.headers).entries());
  const body = typeof options.body === 'string' ? Buffer.from(options.body) : (options.body ?? undefined);
  send({ type: 'web', request, method: options.method ?? 'GET', url, headers }, body);
  const answer = await promise;
  if ('error' in answer.header.answer) throw new Error(answer.header.answer.error);
  return { ...answer.header.answer, body: answer.body };
}

/** Of a program in WebAssembly, MiB: what the Host bounds the heap by. */
const memoryMiB = Number(process.argv[2] ?? 64);

function bashOf(message: Pick<RunMessage, 'python' | 'web'>, fs: WorkspaceFs): Bash {
  const bounds = { memoryMiB, onMemory: endForMemory };
  return new Bash({
    fs,
    cwd: WORKSPACE,
    env: { HOME: WORKSPACE, USER: 'agent', LANG: 'C.UTF-8', TMPDIR: '/tmp' },
    executionLimits: LIMITS,
    customCommands: message.python ? [...pythonCommands(fs, bounds), sqliteCommand(fs, bounds)] : [],
    ...(message.web ? { fetch: webFetch } : {}),
  });
}

/** The files of a call, and a shell over them. */
function prepare(message: RunMessage): { bash: Bash; tree: Tree } {
  const tree = new Tree(message.limits);
  const fs = new WorkspaceFs(tree, { read: async (given) => await asked(given).bytes, readNow });
  tree.makeDirectories(WORKSPACE, 'mkdir');
  tree.makeDirectories('/tmp', 'mkdir');
  const bash = bashOf(message, fs);
  tree.startCounting();
  for (const path of message.directories) tree.makeDirectories(`${WORKSPACE}/${path}`, 'mkdir');
  for (const [given, [path, size, mode]] of message.files.entries()) {
    const at = `${WORKSPACE}/${path}`;
    tree.makeDirectories(at.slice(0, at.lastIndexOf('/')), 'mkdir');
    tree.put(at, tree.givenFile(given, size, mode, message.now), 'open');
  }
  tree.seal();
  return { bash, tree };
}

async function run(message: RunMessage): Promise<void> {
  const before = process.cpuUsage();
  const cpuMs = () => {
    const { user, system } = process.cpuUsage(before);
    return Math.round((user + system) / 1000);
  };
  const { bash, tree } = prepare(message);
  let ended: { stdout: string; stderr: string; exitCode: number };
  try {
    ended = await bash.exec(message.command, { rawScript: true });
  } catch (error) {
    // A fault of the interpreter counts as the script's: it uses something that shells treat differently.
    ended = { stdout: '', stderr: `bash: ${error instanceof Error ? error.message : 'failed'}\n`, exitCode: 2 };
  }
  if (tree.exceeded !== null) return send({ type: 'exceeded', message: tree.exceeded, cpuMs: cpuMs() });
  const kept = [...walk(tree.needDirectory(WORKSPACE, 'open'), '')].filter(([path, node]) => isKept(path, node));
  if (kept.length > message.limits.files) {
    const words = `a workspace holds ${message.limits.files} files and empty directories at most, not ${kept.length}`;
    return send({ type: 'exceeded', message: words, cpuMs: cpuMs() });
  }
  const left = leave(message, kept);
  const { stdout, stderr, truncated } = boundedOutput(ended.stdout, ended.stderr);
  const exitCode = Number.isSafeInteger(ended.exitCode) ? ended.exitCode & 0xff : 1;
  send({ type: 'done', stdout, stderr, truncated, exitCode, cpuMs: cpuMs(), ...left });
}

function isKept(path: string, node: Node): boolean {
  return node.kind === 'file' || (node.entries.size === 0 && path !== '');
}

/** Sends the bytes that are new, and says where those of all files are. */
function leave(message: RunMessage, kept: readonly [string, Node][]) {
  const files: [string, number, FileSource][] = [];
  const directories: string[] = [];
  const sent = new Map<Uint8Array, number>();
  for (const [path, node] of kept) {
    if (node.kind === 'file') files.push([path.slice(1), node.mode, sourceOf(node, sent)]);
    else directories.push(path.slice(1));
  }
  const given = new Set(message.directories);
  const isSame =
    files.length === message.files.length &&
    directories.length === given.size &&
    directories.every((path) => given.has(path)) &&
    files.every(([path, mode, source]) => {
      const file = 'given' in source ? message.files[source.given] : undefined;
      return file !== undefined && file[0] === path && file[2] === mode;
    });
  return isSame ? { files: null, directories: [] } : { files, directories };
}

function sourceOf(file: FileNode, sent: Map<Uint8Array, number>): FileSource {
  if (file.given !== null) return { given: file.given };
  const bytes = file.bytes ?? new Uint8Array(0);
  let number = file.shared ? sent.get(bytes) : undefined;
  if (number === undefined) {
    number = sentCount++;
    sent.set(bytes, number);
    send({ type: 'bytes' }, bytes.subarray(0, file.size));
  }
  return { sent: number };
}
let sentCount = 0;

/** The Host is trusted: it has nothing to gain from this process. */
function isMessage(header: unknown): header is ToChild {
  return typeof header === 'object' && header !== null && 'type' in header;
}

function take({ header: message, body }: Frame): void {
  if (!isMessage(message)) return;
  if (message.type === 'content') {
    const waiting = contents.get(message.file);
    if (waiting === undefined) return;
    waiting.arrived = body;
    waiting.resolve(body);
  } else if (message.type === 'web') {
    requests.get(message.request)?.({ header: message, body });
    requests.delete(message.request);
  } else {
    contents.clear();
    requests.clear();
    [requestsMade, sentCount] = [0, 0];
    void run(message);
  }
}

function receive(chunk: Buffer): void {
  reader.push(chunk);
  for (let next = reader.next(); next !== null; next = reader.next()) take(next);
}

/** Commands that most scripts use, so that the first call finds them compiled. */
const WARM_UP = `
mkdir -p a && cd a && for i in 1 2 3; do echo "line $i" >> f; done
cat f | grep -n line | sed 's/line/x/' | awk '{print $2}' | sort -r | uniq | head -2 | wc -l
ls -la; find . -name f; [ -f f ] && cp f g && mv g h && rm h; echo '{"a":1}' | jq .a; printf '%s' "\${PWD##*/}" | tr a-z A-Z
`;

async function warmUp(): Promise<void> {
  const limits = { files: 100, totalBytes: MIB, fileBytes: MIB };
  const empty = {
    type: 'run',
    command: '',
    files: [],
    directories: [],
    limits,
    python: false,
    web: false,
    now: 0,
  } as const;
  await prepare(empty).bash.exec(WARM_UP);
}

// The Host is gone, or no longer needs this process.
input.on('end', () => process.exit(0));
input.on('error', () => process.exit(0));
output.on('error', () => process.exit(0));
await warmUp();
input.on('data', receive);
send({ type: 'ready' });
