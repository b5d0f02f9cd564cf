import { randomBytes, randomUUID } from 'node:crypto';
import { tmpdir } from 'node:os';
import { readConfig } from '../app/config.ts';
import { assembleHost, stopHost } from '../app/host.ts';
import type { AssembledHost } from '../app/host.ts';
import type { HostOptions } from '../app/services.ts';
import { createClient } from '../client/client.ts';
import type { Client, Executor, Handler } from '../client/client.ts';
import { fixtureModel } from '../drivers/model/fixture.ts';
import { MemoryObjects } from '../drivers/objects/memory.ts';
import { withFaultPoints } from '../lib/fault-points.ts';
import { createLogger } from '../lib/logger.ts';
import { KEY_BYTES, sealingKey } from '../lib/sealed-box.ts';
import { Stack } from '../lib/stack.ts';
import { StartError } from '../lib/start-error.ts';
import { openInProcess } from '../projections/read-store/pglite.ts';
import { MemoryServers } from '../streams/memory/servers.ts';
import { SettableClock } from './clock.ts';
import { BASE_URL, InProcessConnections } from './connections.ts';
import { scriptedModel } from './scripted-model.ts';
import type { MemoryClientOptions, MemoryHostOptions, MemoryTenant } from './types.ts';
import type { FailurePoint, MemoryHost, UntilOptions } from './types.ts';
import { untilRecorded } from './until.ts';
import { Workers } from './workers.ts';

const DEFAULTS = {
  AGENT_HOST_FIXTURE_MODEL: '1',
  AGENT_HOST_LOG_LEVEL: 'silent',
  AGENT_HOST_CACHE_MIB: '16',
  AGENT_HOST_PROCESSES: '1',
};

/** Starts a Host in the memory of this process: no port, no server, no file but the image of an empty database. */
export async function startInMemory(given: MemoryHostOptions): Promise<MemoryHost> {
  const stack = new Stack();
  const start = given.now === undefined ? undefined : new Date(given.now).getTime();
  const clock = new SettableClock(start);
  const options = await optionsOf(given, clock, stack);
  try {
    return await assembled(options, clock, stack);
  } catch (error) {
    await stopHost(options, stack);
    throw error;
  }
}

type MemoryOptions = HostOptions & { readonly memory: NonNullable<HostOptions['memory']> } & {
  readonly servers: MemoryServers;
};

async function optionsOf(given: MemoryHostOptions, { clock }: SettableClock, stack: Stack): Promise<MemoryOptions> {
  const config = readConfig({ ...DEFAULTS, ...given.env });
  if (config.processes > 1)
    throw new StartError('AGENT_HOST_PROCESSES is above 1, and a Host in memory is one process; unset it');
  const servers = new MemoryServers({ shards: config.shards ?? 1, clock });
  stack.defer('servers', () => servers.close());
  const database = await openInProcess(given.cacheDirectory);
  stack.defer('database', database.close);
  const model = given.model === undefined ? fixtureModel : scriptedModel(given.model);
  return {
    config: { ...config, roles: ['commands', 'reads', 'projector'] },
    ...{ natsUrl: '', databaseUrl: database.url, embedded: { nats: undefined, postgres: undefined } },
    down: () => ({ nats: false, postgres: false }),
    adminKey: given.adminKey ?? config.adminKey ?? randomBytes(32).toString('base64url'),
    hostKey: sealingKey(randomBytes(KEY_BYTES)),
    earlierHostKeys: [],
    nodeId: `memory-${randomUUID()}`,
    clock,
    dataDir: tmpdir(),
    logger: await createLogger({ level: config.logLevel, pretty: false }),
    memory: { servers, objects: new MemoryObjects(clock), model, drainMs: 0 },
    servers,
    // There is no process of its own to stop.
    shutDown: () => undefined,
  };
}

async function assembled(options: MemoryOptions, clock: SettableClock, stack: Stack): Promise<MemoryHost> {
  const workers = new Workers({ servers: options.servers, options, parts: options.memory });
  const asThisNode = <T>(work: () => T): T => withFaultPoints(async (name) => await workers.reached(name), work);
  const host = await asThisNode(async () => await assembleHost(options, stack));
  await host.server.ready();
  const connections = new InProcessConnections(host.server.server, asThisNode);
  stack.defer('listener', async () => {
    const ending = host.endServer({ drainMs: options.config.drainMs, othersServe: false });
    await connections.close();
    await ending;
  });
  stack.defer('workers', async () => await workers.close());
  await workers.start();
  host.node.leases.hear();
  const listen = async (port: number): Promise<string> =>
    await asThisNode(async () => await host.server.listen({ host: '127.0.0.1', port }));
  return new InMemoryHost({ options, clock, stack, host, listen, connections, workers });
}

interface Running {
  readonly options: MemoryOptions;
  readonly clock: SettableClock;
  readonly stack: Stack;
  readonly host: AssembledHost;
  readonly listen: (port: number) => Promise<string>;
  readonly connections: InProcessConnections;
  readonly workers: Workers;
}

class InMemoryHost implements MemoryHost {
  readonly adminKey: string;
  readonly clock: SettableClock;
  readonly #running: Running;
  readonly #executors: Executor[] = [];
  #closing: Promise<void> | null = null;

  constructor(running: Running) {
    this.#running = running;
    this.clock = running.clock;
    this.adminKey = running.options.adminKey;
  }

  async fetch(input: string | URL | Request, init?: RequestInit): Promise<Response> {
    return await this.#running.connections.fetch(input, init);
  }

  async listen(port = 0): Promise<string> {
    return await this.#running.listen(port);
  }

  client({ key = this.adminKey, ...options }: MemoryClientOptions): Client {
    const send = async (url: string, init: RequestInit): Promise<Response> => await this.fetch(url, init);
    return createClient({ ...options, key, url: BASE_URL, fetch: send });
  }

  async tenant(name = 'A tenant'): Promise<MemoryTenant> {
    const admin = this.client({});
    const body = { name, requestId: randomUUID(), idempotencyKey: randomUUID() };
    const { tenant, applicationKey } = await admin.request('POST /v1/admin/tenants', { body });
    const { id } = tenant;
    const key = applicationKey ?? '';
    const client = this.client({ tenant: id, key });
    await client.request('PUT /v1/tenant/config/seed', { body: { requestId: randomUUID(), fixtureModel: true } });
    return {
      ...{ id, key, client },
      as: (subjectId, scopes = ['sessions:own']) =>
        this.client({ tenant: id, key, subject: { id: subjectId, scopes } }),
      tools: async (agentId, handlers) => await this.#tools({ id, client }, agentId, handlers),
    };
  }

  async #tools(
    { id, client }: Pick<MemoryTenant, 'id' | 'client'>,
    agentId: string,
    handlers: Readonly<Record<string, Handler>>,
  ): Promise<Executor> {
    const token = `executor-${randomBytes(16).toString('base64url')}`;
    await client.request('PUT /v1/executors', { body: { executors: [{ agentId, token }] } });
    const executor = this.client({ tenant: id, key: token }).executor(agentId, handlers);
    this.#executors.push(executor);
    return executor;
  }

  until: MemoryHost['until'] = async (sessionId, type, options: UntilOptions = {}) => {
    const { servers } = this.#running.options;
    const deps = { streams: servers.streams, store: this.#running.host.node.log.store };
    // The wire's record of this type has these members.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    return (await untilRecorded(deps, sessionId, type, options)) as never;
  };

  async fail(point: FailurePoint): Promise<void> {
    await this.#running.workers.fail(point);
  }

  async close(): Promise<void> {
    this.#closing ??= this.#close();
    await this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    await Promise.all(this.#executors.map(async (executor) => await executor.stop(0)));
    await stopHost(this.#running.options, this.#running.stack);
  }
}
