import { WebSocket } from 'undici';
import type { KubernetesApi } from './api.ts';
import { status } from './objects.ts';

/** The versions of the protocol, newest first: only v5 can say that the input has ended. */
const PROTOCOLS = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, error: 3, close: 255 } as const;
/** Bytes of the input in one message: servers refuse large ones. */
const CHUNK_BYTES = 32_768;
const OPEN_MS = 20_000;
/** Beyond what is kept, the connection is ended. */
const KEPT_BYTES_MAX = 16_777_216;

export interface Exec {
  readonly pod: string;
  readonly container: string;
  /** It reads no more of its input than it was told: a server that speaks v4 cannot end it. */
  readonly command: readonly string[];
  readonly stdin?: Uint8Array;
}

export interface ExecEnd {
  /** Whether the server accepted the exec, so that the command may have run. */
  readonly opened: boolean;
  /** Null: the connection ended before the server said how the command did. It may still run. */
  readonly exitCode: number | null;
  /** What has arrived, which may lack its end even when the exit code is 0. */
  readonly stdout: Buffer;
  readonly stderr: Buffer;
  /** For people, when there is no exit code. */
  readonly reason: string;
}

/**
 * Runs a program in a container. Never rejects: how the connection ended is in the answer. When `signal` aborts, the
 * connection is closed, which does not end the command.
 */
export async function exec(api: KubernetesApi, what: Exec, signal: AbortSignal): Promise<ExecEnd> {
  if (signal.aborted) return nothing('it was given up');
  const { pod, container, command, stdin } = what;
  const url = api.address(`pods/${pod}/exec`, [
    ...command.map((word) => ['command', word] as const),
    ...([
      ['container', container],
      ['stdin', String(stdin !== undefined)],
    ] as const),
    ...([
      ['stdout', 'true'],
      ['stderr', 'true'],
      ['tty', 'false'],
    ] as const),
  ]);
  url.protocol = url.protocol.replace('http', 'ws');
  let token: string;
  try {
    token = await api.access.token();
  } catch {
    return nothing('the token of the service account cannot be read');
  }
  const socket = new WebSocket(url, {
    ...{ protocols: PROTOCOLS, headers: { authorization: `Bearer ${token}` }, dispatcher: api.dispatcher },
  });
  return await new Conversation(socket, stdin, signal).ended;
}

class Conversation {
  readonly ended: Promise<ExecEnd>;
  readonly #socket: WebSocket;
  readonly #stdout: Buffer[] = [];
  readonly #stderr: Buffer[] = [];
  #bytes = 0;
  #opened = false;
  #exitCode: number | null = null;
  #reason = 'the connection was cut';

  constructor(socket: WebSocket, stdin: Uint8Array | undefined, signal: AbortSignal) {
    this.#socket = socket;
    socket.binaryType = 'arraybuffer';
    const { promise, resolve } = Promise.withResolvers<ExecEnd>();
    this.ended = promise;
    const give = (reason: string): void => {
      this.#reason = reason;
      socket.close();
      // A server that is gone does not answer to that.
      finish();
    };
    const late = setTimeout(() => give('the API server does not answer'), OPEN_MS);
    const onAbort = (): void => give('it was given up');
    const finish = (): void => {
      clearTimeout(late);
      signal.removeEventListener('abort', onAbort);
      const [stdout, stderr] = [Buffer.concat(this.#stdout), Buffer.concat(this.#stderr)];
      resolve({ opened: this.#opened, exitCode: this.#exitCode, stdout, stderr, reason: this.#reason });
    };
    signal.addEventListener('abort', onAbort, { once: true });
    socket.addEventListener('open', () => {
      clearTimeout(late);
      this.#opened = true;
      if (stdin !== undefined) this.#write(stdin);
    });
    socket.addEventListener('message', ({ data }) => {
      if (!(data instanceof ArrayBuffer) || !this.#take(Buffer.from(data), give)) return;
      // That was the last word. The other side may take its time to hang up.
      socket.close();
      finish();
    });
    socket.addEventListener('error', () => undefined);
    socket.addEventListener('close', finish);
  }

  #write(stdin: Uint8Array): void {
    for (let at = 0; at < stdin.byteLength; at += CHUNK_BYTES) {
      this.#socket.send(Buffer.concat([Buffer.of(CHANNEL.stdin), stdin.subarray(at, at + CHUNK_BYTES)]));
    }
    if (this.#socket.protocol === PROTOCOLS[0]) this.#socket.send(Buffer.of(CHANNEL.close, CHANNEL.stdin));
  }

  /** Whether it was the last message. */
  #take(message: Buffer, give: (reason: string) => void): boolean {
    const [channel] = message;
    const bytes = message.subarray(1);
    this.#bytes += bytes.length;
    if (this.#bytes > KEPT_BYTES_MAX) give('the command has too much output');
    else if (channel === CHANNEL.stdout) this.#stdout.push(bytes);
    else if (channel === CHANNEL.stderr) this.#stderr.push(bytes);
    if (channel !== CHANNEL.error) return false;
    this.#exitCode = exitCodeOf(bytes);
    if (this.#exitCode === null) this.#reason = bytes.toString('utf8').slice(0, 500);
    return true;
  }
}

/** As the server's last word has it; null: it was not the command that failed. */
function exitCodeOf(bytes: Buffer): number | null {
  try {
    const said = status.parse(JSON.parse(bytes.toString('utf8')));
    if (said.status === 'Success') return 0;
    const code = said.details?.causes?.find(({ reason }) => reason === 'ExitCode')?.message;
    return code === undefined || !/^\d{1,3}$/.test(code) ? null : Number(code);
  } catch {
    return null;
  }
}

function nothing(reason: string): ExecEnd {
  return { opened: false, exitCode: null, stdout: Buffer.alloc(0), stderr: Buffer.alloc(0), reason };
}
