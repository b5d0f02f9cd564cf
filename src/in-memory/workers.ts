import type { HostOptions, MemoryBacking } from '../app/services.ts';
import { openServices } from '../app/services.ts';
import { startEngine } from '../app/engine.ts';
import { stopHost } from '../app/host.ts';
import { withFaultPoints } from '../lib/fault-points.ts';
import type { FaultPoint } from '../lib/fault-points.ts';
import { Stack } from '../lib/stack.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import { MemoryLink } from '../streams/memory/servers.ts';
import type { MemoryServers } from '../streams/memory/servers.ts';
import type { FailurePoint } from './types.ts';

/** Points that others than the worker reach, which the turn then waits for. */
const POINTS: Readonly<Partial<Record<FaultPoint, FailurePoint>>> = { 'action.settled': 'tool.finished' };

interface Node {
  /** Settles when it has been started, or has failed to be. */
  readonly started: Promise<void>;
  readonly link: MemoryLink;
  readonly stack: Stack;
  readonly options: HostOptions;
}

export interface WorkersOptions {
  readonly servers: MemoryServers;
  /** Those of the Host's nodes; a worker has a name, a role and a connection of its own. */
  readonly options: HostOptions;
  readonly parts: Omit<MemoryBacking, 'servers'>;
}

/** The worker of a Host in memory, and those after it: nodes of their own, that share nothing but the servers. */
export class Workers {
  readonly #deps: WorkersOptions;
  readonly #armed = new Map<FailurePoint, (() => void)[]>();
  readonly #ending: Promise<unknown>[] = [];
  #current: Node | null = null;
  #started = 0;
  #isClosed = false;

  constructor(deps: WorkersOptions) {
    this.#deps = deps;
  }

  /** Resolves when the first worker is there. */
  async start(): Promise<void> {
    await this.#next().started;
  }

  #next(): Node {
    this.#started += 1;
    const { servers, options, parts } = this.#deps;
    const link = new MemoryLink(servers);
    const stack = new Stack();
    const nodeId = `${options.nodeId}-worker-${this.#started}`;
    const config = { ...options.config, roles: ['engine' as const] };
    const own: HostOptions = { ...options, nodeId, config, memory: { ...parts, servers: link } };
    const started = withFaultPoints(
      (name) => this.#reached(name, node),
      async () => {
        // Its points are those of the node below.
        await Promise.resolve();
        const services = await openServices(own, stack);
        await startEngine(services, stack);
      },
    );
    const node: Node = { started, link, stack, options: own };
    this.#current = node;
    return node;
  }

  /** Resolves when the worker has died at the point. */
  async fail(point: FailurePoint): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#armed.set(point, [...(this.#armed.get(point) ?? []), resolve]);
    });
  }

  /** A point that the Host's other node has reached. */
  async reached(name: FaultPoint): Promise<void> {
    const point = POINTS[name];
    if (point !== undefined && this.#current !== null && this.#take(point)) await this.#kill(this.#current);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const node = this.#current;
    this.#current = null;
    if (node !== null) {
      // What is being opened would not be closed.
      await node.started.catch(() => undefined);
      this.#ending.push(this.#end(node));
    }
    await Promise.allSettled(this.#ending);
  }

  /** Cuts it off, and stops what is left of it once all of that is there. */
  async #end({ started, link, options, stack }: Node): Promise<void> {
    await link.cut();
    await started.catch(() => undefined);
    await stopHost(options, stack);
  }

  #reached(name: FaultPoint, node: Node): Promise<void> | void {
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- one that is not armed is none of them
    if (node !== this.#current || !this.#take(name as FailurePoint)) return;
    return this.#kill(node).then(() => {
      // Whatever the dead one would do next, it does not: its work ends here as it would with its connection.
      throw new UnavailableError('streams', 'this worker has been killed');
    });
  }

  #take(point: FailurePoint): boolean {
    const waiting = this.#armed.get(point) ?? [];
    const resolve = waiting.shift();
    if (waiting.length === 0) this.#armed.delete(point);
    resolve?.();
    return resolve !== undefined;
  }

  /** Cuts the worker off, and starts the one that takes over. */
  async #kill(node: Node): Promise<void> {
    this.#current = null;
    await node.link.cut();
    this.#ending.push(this.#end(node));
    if (this.#isClosed) return;
    const { started } = this.#next();
    // One that cannot start is a turn that does not go on, which the test sees.
    started.catch((error: unknown) => this.#deps.options.logger.error({ err: error }, 'no worker could be started'));
  }
}
