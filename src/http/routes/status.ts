import type { FastifyRequest } from 'fastify';
import type { FastifyPluginAsyncZod } from 'fastify-type-provider-zod';
import { ACCESS } from '../../auth/authorize.ts';
import type { HostTotals } from '../../projections/tenants/queries.ts';
import { operations } from '../described.ts';
import { PROTOCOL } from '../gate.ts';
import { notFound } from '../problem.ts';
import * as wire from '../wire/schemas.ts';
import type { Check, HostRouteDeps } from './host.ts';

const docs = operations('Admin', {
  getHostStatus: ['The Host, its nodes, and how far its read models are'],
  shutDownHost: ['Stop this process gracefully', 'Only over the loopback interface.'],
});

/** One process of the installation. */
export interface NodeStatus {
  readonly nodeId: string;
  readonly roles: readonly string[];
  readonly version: string;
  readonly startedAt: string;
  readonly lastSeenAt: string;
}

/** How far a group of read models is behind one stream. */
export interface ProjectionStatus {
  readonly name: string;
  /** Where its rows are. */
  readonly schema: string;
  /** Whether nodes of this version read from it. */
  readonly built: boolean;
  readonly shard: number;
  readonly position: number;
  readonly lagEvents: number;
  readonly lagMs: number;
  /** Commits that could not be projected. */
  readonly parked: number;
}

export interface StatusRouteDeps extends HostRouteDeps {
  readonly nodes: () => readonly NodeStatus[];
  readonly totals: () => Promise<HostTotals>;
  readonly projections: () => Promise<readonly ProjectionStatus[]>;
  /** Asks the process to stop gracefully, as SIGTERM does. */
  readonly shutDown: () => void;
}

const FORWARDED = ['forwarded', 'x-forwarded-for', 'x-real-ip', 'via'];

/** The Host's own status, and its end. */
export function statusRoutes(deps: StatusRouteDeps): FastifyPluginAsyncZod {
  const { service, version, features, checks, nodes, totals, projections, shutDown } = deps;
  return async (app) => {
    const config = { rules: { access: ACCESS.admin } };
    app.get(
      '/v1/admin/status',
      { config, schema: { ...docs.getHostStatus, response: { 200: wire.hostStatus } } },
      async () => {
        const [found, { open, draining, deleting, activeTurns, pendingActions }, lags] = await Promise.all([
          checks(),
          totals(),
          projections(),
        ]);
        return {
          service,
          version,
          protocol: { ...PROTOCOL, features: [...features] },
          ready: Object.values(found).every((check: Check) => check.ok),
          checks: found,
          nodes: nodes().map((node) => ({ ...node, roles: [...node.roles] })),
          tenants: { total: open + draining + deleting, open, draining, deleting },
          activeTurns,
          pendingActions,
          projections: [...lags],
        };
      },
    );
    app.post(
      '/v1/admin/host/shutdown',
      { config, schema: { ...docs.shutDownHost, response: { 202: wire.shuttingDown } } },
      async (request, reply) => {
        if (!isLoopback(request)) throw notFound('route');
        // After the answer has left: the stop closes every connection.
        reply.raw.once('finish', shutDown);
        return await reply.code(202).send({ status: 'shutting_down' });
      },
    );
    await Promise.resolve();
  };
}

/** Whether both ends of the connection are this machine's loopback, and no proxy between them speaks for another. */
function isLoopback({ socket, headers }: FastifyRequest): boolean {
  if (FORWARDED.some((name) => name in headers)) return false;
  return [socket.localAddress, socket.remoteAddress].every(
    (address) => address !== undefined && /^(::1|(::ffff:)?127\.\d+\.\d+\.\d+)$/.test(address),
  );
}
