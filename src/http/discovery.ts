import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Caller } from '../auth/caller.ts';
import type { ExecutorRef } from '../projections/actions/queries.ts';
import type { EventStreams } from './sse.ts';

/** Which executors have a discovery stream open, on any node. */
export interface Presence {
  /** A stream was opened here; the function says that it has ended. */
  opened(tenantId: string, agentId: string): () => void;
  /** Agents whose executor is connected to some node; as other nodes told it, a few seconds old at most. */
  connected(tenantId: string): ReadonlySet<string>;
}

/** Tells of work that waits for executors, wherever it was offered. */
export interface WorkFeed {
  /**
   * Calls back when there is any, and whenever there is new; a list that is asked for then has it. Returns the function
   * that ends the listening.
   */
  listen(executor: ExecutorRef, onWork: () => void): () => void;
}

export interface DiscoveryParts {
  readonly streams: EventStreams;
  readonly work: WorkFeed;
  readonly presence: Presence;
}

const WORK_AVAILABLE = 'event: work_available\ndata: {"type":"work_available"}\n\n';

/**
 * Opens the discovery stream of an executor (wire contract, section 9): it says that there is work, never what.
 * @throws ProblemError rate_limited when the tenant has too many streams open
 */
export function discover(
  { streams, work, presence }: DiscoveryParts,
  request: FastifyRequest,
  reply: FastifyReply,
  caller: Caller,
): void {
  const { tenantId, principalId: agentId } = caller;
  streams.openWith(request, reply, caller, (stream) => {
    // The headers go out with the first bytes.
    stream.send(': keepalive\n\n');
    const unlisten = work.listen({ tenantId, agentId }, () => {
      // A reader that has not taken what waits for it learns from that, too, that there is work.
      if (!stream.isSlow) stream.send(WORK_AVAILABLE);
    });
    const left = presence.opened(tenantId, agentId);
    return () => {
      unlisten();
      left();
    };
  });
}
