import { createHash } from 'node:crypto';
import type { z } from 'zod';
import { isFault, manifestOf, sameManifest } from '../../domain/sandbox/manifest.ts';
import type { ManifestFault, WorkspaceFile, WorkspaceManifest } from '../../domain/sandbox/manifest.ts';
import type { SandboxFailure, SandboxResults } from '../../domain/sandbox/tools.ts';
import { childMessage } from './child-messages.ts';
import type { ChildEnd, SandboxChild } from './child-process.ts';
import { FrameError } from './frames.ts';
import type { Frame } from './frames.ts';
import type { RunMessage, WebMessage } from './messages.ts';
import { boundedOutput } from './output.ts';
import type { SandboxCall } from './port.ts';

type Message = z.infer<typeof childMessage>;
type Done = Extract<Message, { type: 'done' }>;

/** After this long a script runs at a lower priority than others. */
const LONG_MS = 1_000;
/** To send what a script has left, after its own time. */
const LEAVING_MS = 60_000;
/** Web requests of one script at the same time, and in all. */
const REQUESTS_AT_ONCE = 8;
const REQUESTS_MAX = 1_000;

export type ScriptEnd =
  | {
      readonly outcome: 'completed';
      readonly result: SandboxResults['bash'];
      readonly files: WorkspaceManifest | null;
      readonly bytesWritten: number;
      readonly cpuMs: number;
    }
  | {
      readonly outcome: 'failed' | 'timeout' | 'killed';
      readonly code: SandboxFailure;
      readonly message: string;
      /** Null: the child ended before it could report it. */
      readonly cpuMs: number | null;
    };

export interface Script {
  readonly command: string;
  readonly timeoutMs: number;
  readonly call: SandboxCall;
}

/** One script in one child, from the first message to the last. */
export class ScriptRun {
  readonly #child: SandboxChild;
  readonly #script: Script;
  readonly #given: readonly WorkspaceFile[];
  readonly #known: Set<string>;
  readonly #asked = new Set<number>();
  readonly #sent: { readonly sha256: string; readonly size: number }[] = [];
  readonly #abort = new AbortController();
  #sentBytes = 0;
  #requests = 0;
  #requestsOpen = 0;
  #isTimedOut = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(child: SandboxChild, script: Script) {
    this.#child = child;
    this.#script = script;
    this.#given = script.call.files.files;
    this.#known = new Set(this.#given.map(({ sha256 }) => sha256));
  }

  /** Settles with the end of the script. The child is gone unless it was completed. @throws the signal's reason, what `contents` throws */
  async run(signal: AbortSignal): Promise<ScriptEnd> {
    const { command, timeoutMs } = this.#script;
    const onAbort = () => void this.#child.kill();
    signal.addEventListener('abort', onAbort, { once: true });
    const long = setTimeout(() => this.#child.demote(), LONG_MS);
    this.#giveTime(timeoutMs);
    try {
      // It may have been aborted while the child started, of which a listener hears nothing.
      signal.throwIfAborted();
      await this.#child.send(this.#runMessage(command));
      return await this.#converse();
    } catch (error) {
      await this.#child.kill();
      if (!(error instanceof FrameError)) throw error;
      return this.#failed('killed', 'sandbox_lost', 'the process of the command broke its protocol; do it another way');
    } finally {
      clearTimeout(long);
      clearTimeout(this.#timer);
      signal.removeEventListener('abort', onAbort);
      this.#abort.abort();
      signal.throwIfAborted();
    }
  }

  async #converse(): Promise<ScriptEnd> {
    for (;;) {
      const next = await this.#child.receive();
      if (next === null) return this.#died(await this.#child.ended);
      const message = parsed(next);
      if (message.type === 'done') return this.#done(message);
      if (message.type === 'exceeded') {
        // Untrusted output is not shown to the model as it is: it is bounded, and made valid text.
        return { outcome: 'failed', code: 'limit_exceeded', message: oneLine(message.message), cpuMs: message.cpuMs };
      }
      if (message.type === 'read') await this.#read(message.file);
      else if (message.type === 'bytes') await this.#keep(next.body);
      else if (message.type === 'web') this.#ask(message, next.body);
      else throw new FrameError('a child is ready twice');
    }
  }

  #runMessage(command: string): RunMessage {
    const { files, limits, python, web } = this.#script.call;
    return {
      type: 'run',
      command,
      files: files.files.map(({ path, size, mode }) => [path, size, mode] as const),
      directories: files.directories,
      limits,
      python,
      web: web !== undefined && web !== null,
      now: Date.now(),
    };
  }

  #giveTime(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#isTimedOut = true;
      void this.#child.kill();
    }, ms);
  }

  /** Each file is asked for once, and is one of those given: there is no other way to bytes. */
  async #read(index: number): Promise<void> {
    const file = this.#given[index];
    if (file === undefined || this.#asked.has(index)) throw new FrameError('a child asks for what it may not have');
    this.#asked.add(index);
    const bytes = await Promise.race([this.#script.call.contents.read(file.sha256), this.#child.ended]);
    if (!(bytes instanceof Uint8Array)) return;
    await this.#child.send({ type: 'content', file: index }, bytes);
  }

  /** Takes the bytes of a file to the store before the next message is read: how many may be under way is for that to say. */
  async #keep(bytes: Uint8Array): Promise<void> {
    const { limits, contents } = this.#script.call;
    if (this.#sent.length === 0) this.#giveTime(LEAVING_MS);
    this.#sentBytes += bytes.byteLength;
    const isTooMuch = this.#sent.length >= limits.files || this.#sentBytes > limits.totalBytes;
    if (isTooMuch || bytes.byteLength > limits.fileBytes) throw new FrameError('a child sends more than it may');
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    if (!this.#known.has(sha256)) {
      await contents.write(sha256, bytes);
      this.#known.add(sha256);
    }
    this.#sent.push({ sha256, size: bytes.byteLength });
  }

  /** The script waits for the answer, the conversation does not. */
  #ask(message: Extract<Message, { type: 'web' }>, body: Uint8Array): void {
    const { web } = this.#script.call;
    this.#requests += 1;
    if (web === undefined || web === null || this.#requestsOpen >= REQUESTS_AT_ONCE || this.#requests > REQUESTS_MAX) {
      return this.#answer(message.request, { error: 'too many requests, or none is allowed' });
    }
    this.#requestsOpen += 1;
    const { method, url, headers } = message;
    const request = { method, url, headers, body: body.byteLength === 0 ? null : body };
    void web(request, this.#abort.signal)
      .then(({ body: bytes, ...rest }) =>
        this.#answer(message.request, { ...rest, headers: { ...rest.headers } }, bytes),
      )
      .catch((error: unknown) =>
        this.#answer(message.request, { error: error instanceof Error ? error.message : 'the request failed' }),
      )
      .finally(() => (this.#requestsOpen -= 1));
  }

  #answer(request: number, answer: WebMessage['answer'], body?: Uint8Array): void {
    if (!this.#abort.signal.aborted) void this.#child.send({ type: 'web', request, answer }, body);
  }

  #done(done: Done): ScriptEnd {
    const { stdout, stderr, truncated } = boundedOutput(done.stdout, done.stderr);
    const isCut = truncated || done.truncated;
    const result = { stdout, stderr, exitCode: done.exitCode, ...(isCut ? { truncated: true as const } : {}) };
    const after = this.#after(done);
    if (isFault(after)) return { outcome: 'failed', ...after, cpuMs: done.cpuMs };
    const { files: before } = this.#script.call;
    const files = sameManifest(before, after) ? null : after;
    return { outcome: 'completed', result, files, bytesWritten: written(before, after), cpuMs: done.cpuMs };
  }

  #after({ files, directories }: Done): WorkspaceManifest | ManifestFault {
    if (files === null) return this.#script.call.files;
    const entries = files.map(([path, mode, source]) => {
      const bytes = 'given' in source ? this.#given[source.given] : this.#sent[source.sent];
      if (bytes === undefined) throw new FrameError('a child names bytes that there are not');
      return { path, sha256: bytes.sha256, size: bytes.size, mode: mode & 0o777 };
    });
    return manifestOf(entries, directories, this.#script.call.limits);
  }

  #died({ signal, lastWords }: ChildEnd): ScriptEnd {
    if (this.#isTimedOut) {
      const seconds = Math.round(this.#script.timeoutMs / 1000);
      const message = `the command took longer than ${seconds} s and was ended; nothing of it was kept. Give it more time or less to do`;
      return this.#failed('timeout', 'timeout', message);
    }
    if (signal !== 'SIGKILL' && /heap|memory|allocation/i.test(lastWords)) {
      const message = 'the command needed more memory than it may have and was ended; nothing of it was kept';
      return this.#failed('killed', 'out_of_memory', message);
    }
    return this.#failed('killed', 'sandbox_lost', 'the process of the command has ended; nothing of it was kept');
  }

  #failed(outcome: 'timeout' | 'killed', code: SandboxFailure, message: string): ScriptEnd {
    return { outcome, code, message, cpuMs: null };
  }
}

function parsed({ header }: Frame): Message {
  const message = childMessage.safeParse(header);
  if (!message.success) throw new FrameError('a child says what it may not');
  return message.data;
}

/** Bytes of the files that are new or changed. */
function written(before: WorkspaceManifest, after: WorkspaceManifest): number {
  const was = new Map(before.files.map(({ path, sha256 }) => [path, sha256]));
  return after.files.reduce((sum, { path, sha256, size }) => sum + (was.get(path) === sha256 ? 0 : size), 0);
}

function oneLine(text: string): string {
  return text
    .toWellFormed()
    .replaceAll(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, ' ')
    .slice(0, 1_000);
}
