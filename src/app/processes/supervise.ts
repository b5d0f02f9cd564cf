import cluster from 'node:cluster';
import { serversDown } from '../../embedded/servers.ts';
import type { Servers } from '../../embedded/servers.ts';
import type { Logger } from '../../lib/logger.ts';
import type { Stack } from '../../lib/stack.ts';
import type { Config } from '../config.ts';
import { listenForMetrics } from '../listening.ts';
import type { Listening } from '../listening.ts';
import { Metrics } from '../metrics/metrics.ts';
import { sampleServers } from '../metrics/node.ts';
import { ForkedProcess } from './forked-process.ts';
import { mergedMetrics } from './merged-metrics.ts';
import type { StartMessage } from './messages.ts';
import { planOf } from './plan.ts';
import type { PlannedProcess } from './plan.ts';
import { Supervisor } from './supervisor.ts';

export interface SuperviseOptions {
  readonly config: Config;
  readonly servers: Servers;
  /** What each process runs. */
  readonly program: string;
  readonly stop: AbortController;
  /** After this and the drain a process that does not end is killed, ms. */
  readonly killMs: number;
  readonly logger: Logger;
}

export interface Supervised extends Listening {
  readonly supervisor: Supervisor;
}

/** Starts the processes of a Host and keeps them; resolves when all of them are ready. @throws StartError */
export async function supervise(options: SuperviseOptions, stack: Stack): Promise<Supervised> {
  const { config, servers, program, stop, killMs, logger } = options;
  // All accept from one socket, and the one that has time does. What waits there when one dies is taken by the others; with
  // connections that are dealt out, one that is on its way to a process that is killed would never be answered.
  cluster.schedulingPolicy = cluster.SCHED_NONE;
  cluster.setupPrimary({ exec: program, args: [] });
  const plan = planOf(config.processes, config.roles);
  const { natsUrl, databaseUrl, embedded } = servers;
  const supervisor = new Supervisor({
    ...{ plan, drainMs: config.drainMs, onFailed: (reason) => stop.abort(reason), logger },
    fork: (planned) => {
      const given = { natsUrl, databaseUrl, down: serversDown(embedded) };
      const start = { ...planned, roles: [...planned.roles], ...given, ...shareOf(plan, config) };
      const shutDown = (): void => stop.abort('asked by the Admin API');
      return new ForkedProcess(cluster.fork(), { start, killMs, shutDown });
    },
  });
  for (const server of [embedded.nats, embedded.postgres])
    server?.onChange(() => supervisor.tellServers(serversDown(embedded)));
  const says = { metrics: metricsOf(supervisor, servers), isReady: async () => await supervisor.isReady() };
  const metricsAddress = await listenForMetrics(says, config.metricsListen, stack);
  stack.defer('processes', async () => await supervisor.stop(wordsOf(stop.signal.reason)));
  return { supervisor, metricsAddress, address: await supervisor.start() };
}

/** A process's part of what the machine can do at once; its part of the connections depends on the log, which it opens. */
function shareOf(
  plan: readonly PlannedProcess[],
  config: Config,
): Pick<StartMessage, 'sandboxChildren' | 'servingProcesses'> {
  const running = plan.filter((one) => one.roles.includes('engine')).length;
  const sandboxChildren = Math.max(1, Math.ceil(config.sandboxes.children / Math.max(1, running)));
  return { sandboxChildren, servingProcesses: plan.filter((one) => one.isServing).length };
}

/** The figures of all processes, those of the supervisor itself among them. */
function metricsOf(supervisor: Supervisor, { embedded }: Servers): () => Promise<string> {
  const own = new Metrics();
  own.registry.setDefaultLabels({ process: 'supervisor' });
  sampleServers(own, embedded);
  own.sample('processes_replaced_total', () => supervisor.replaced);
  return async () => mergedMetrics([await own.registry.metrics(), ...(await supervisor.ask('metrics'))]);
}

const wordsOf = (reason: unknown): string => (reason instanceof Error ? reason.message : String(reason));
