import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import type { WebSocket } from 'ws';
import type { KubernetesCluster } from './kubernetes-cluster.ts';
import { Refusal } from './kubernetes-store.ts';
import type { StoredObject } from './kubernetes-store.ts';

const CHANNEL = { stdin: 0, stdout: 1, stderr: 2, error: 3, close: 255 } as const;

interface Upgrade {
  readonly request: IncomingMessage;
  readonly socket: Duplex;
  readonly head: Buffer;
  readonly url: URL;
  readonly pod: StoredObject;
}

/** What goes wrong with an exec whose command has this word in it. */
export interface ExecFault {
  readonly word: string;
  /**
   * `open`: the connection is cut before the command begins. `begun`: when it has begun. `ended`: when it has ended,
   * before its status is sent. `delayed`: when its input is there, and the command begins with `deliver`. `vanished`: with its
   * pod. `late`: its pod has just ended, so that it fails. `mute`: the connection stays, and nothing comes of it. A number: as many bytes of its output arrive, and its status says
   * that all is well.
   */
  readonly at: 'open' | 'begun' | 'ended' | 'delayed' | 'vanished' | 'late' | 'mute' | number;
}

/** Execs over WebSockets, as an API server and a kubelet make them together. */
export class ExecServer {
  readonly faults: ExecFault[] = [];
  /** Those that the server speaks. */
  protocols = ['v5.channel.k8s.io', 'v4.channel.k8s.io'];
  /** What the connections agreed on. */
  readonly agreed: string[] = [];
  readonly #cluster: KubernetesCluster;
  readonly #server: WebSocketServer;
  readonly #sockets = new Set<WebSocket>();
  readonly #delayed: (() => Promise<void>)[] = [];

  constructor(cluster: KubernetesCluster) {
    this.#cluster = cluster;
    const handleProtocols = (offered: Set<string>): string | false =>
      this.protocols.find((protocol) => offered.has(protocol)) ?? false;
    this.#server = new WebSocketServer({ noServer: true, handleProtocols });
  }

  get open(): number {
    return this.#sockets.size;
  }

  /** Cuts all connections; their commands go on. */
  cut(): void {
    for (const socket of this.#sockets) socket.terminate();
  }

  /** Has what was delayed begin, and resolves when it has ended. */
  async deliver(): Promise<void> {
    await Promise.all(this.#delayed.splice(0).map(async (begin) => await begin()));
  }

  accept({ request, socket, head, url, pod }: Upgrade): void {
    const container = this.#cluster.container(pod);
    if (container === undefined) throw new Refusal(400, 'BadRequest', { message: 'the container is not running' });
    const command = url.searchParams.getAll('command');
    const at = this.#fault(command);
    if (at === 'open') return void socket.destroy();
    if (at === 'vanished') return void this.#cluster.vanish(pod.metadata.name).then(() => socket.destroy());
    this.#server.handleUpgrade(request, socket, head, (connection) => {
      this.agreed.push(connection.protocol);
      this.#sockets.add(connection);
      connection.on('error', () => undefined);
      const finish = (code: number): void => {
        connection.send(Buffer.concat([Buffer.of(CHANNEL.error), Buffer.from(JSON.stringify(statusOf(code)))]));
        connection.close(1000);
      };
      if (at === 'delayed') {
        const input: Buffer[] = [];
        connection.on('close', () => this.#sockets.delete(connection));
        return void connection.on('message', (data: Buffer) => {
          if (data[0] === CHANNEL.stdin) return void input.push(data.subarray(1));
          this.#delayed.push(async () => {
            const child = container.exec(command, true);
            child.stdin?.end(Buffer.concat(input));
            await new Promise((resolve) => child.on('close', resolve));
          });
          return connection.terminate();
        });
      }
      if (at === 'late') {
        connection.on('close', () => this.#sockets.delete(connection));
        return void this.#cluster.vanish(pod.metadata.name).then(() => finish(1));
      }
      if (at === 'mute') return void connection.on('close', () => this.#sockets.delete(connection));
      const child = container.exec(command, url.searchParams.get('stdin') === 'true');
      connection.on('close', () => {
        this.#sockets.delete(connection);
        // The command is not ended by this; what it writes is not read any more.
        for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe?.destroy();
      });
      for (const pipe of [child.stdin, child.stdout, child.stderr]) pipe?.on('error', () => undefined);
      let left = typeof at === 'number' ? at : Number.POSITIVE_INFINITY;
      const show = (channel: number, chunk: Buffer): void => {
        const kept = chunk.subarray(0, left);
        left -= kept.length;
        if (kept.length > 0) connection.send(Buffer.concat([Buffer.of(channel), kept]));
      };
      child.stdout?.on('data', (chunk: Buffer) => show(CHANNEL.stdout, chunk));
      child.stderr?.on('data', (chunk: Buffer) => show(CHANNEL.stderr, chunk));
      connection.on('message', (data: Buffer) => {
        if (data[0] === CHANNEL.stdin) child.stdin?.write(data.subarray(1));
        else if (data[0] === CHANNEL.close && data[1] === CHANNEL.stdin) child.stdin?.end();
        if (at === 'begun') connection.terminate();
      });
      child.on('error', () => connection.terminate());
      child.on('close', (code) => {
        if (at === 'ended') return connection.terminate();
        return finish(code ?? 137);
      });
    });
  }

  #fault(command: readonly string[]): ExecFault['at'] | null {
    const index = this.faults.findIndex(({ word }) => command.some((one) => one.includes(word)));
    return index < 0 ? null : (this.faults.splice(index, 1)[0]?.at ?? null);
  }
}

function statusOf(code: number) {
  if (code === 0) return { metadata: {}, status: 'Success' };
  return {
    ...{ metadata: {}, status: 'Failure', reason: 'NonZeroExitCode' },
    message: `command terminated with non-zero exit code: exit status ${code}`,
    details: { causes: [{ reason: 'ExitCode', message: String(code) }] },
  };
}
