import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Caller } from '../auth/caller.ts';
import type { ActionIndex } from '../projections/actions/queries.ts';
import { ReadStoreUnavailableError } from '../projections/unavailable.ts';
import type { EventStreams, SseStream } from './sse.ts';

/** Which executors have a discovery stream open, on any node. */
export interface Presence {
  /** A stream was opened here; the function says that it has ended. */
  opened(tenantId: string, agentId: string): () => void;
  /** Agents whose executor is connected to some node; as other nodes told it, a few seconds old at most. */
  connected(tenantId: string): ReadonlySet<string>;
}

export interface DiscoveryParts {
  readonly streams: EventStreams;
  readonly actions: ActionIndex;
  readonly presence: Presence;
}

const WORK_AVAILABLE = 'event: work_available\ndata: {"type":"work_available"}\n\n';

/**
 * Opens the discovery stream of an executor (wire contract, section 9): it says that there is work, never what.
 * @throws ProblemError rate_limited when the tenant has too many streams open
 */
export function discover(
  { streams, actions, presence }: DiscoveryParts,
  request: FastifyRequest,
  reply: FastifyReply,
  caller: Caller,
): void {
  const { tenantId, principalId: agentId } = caller;
  streams.openWith(request, reply, caller, (stream) => {
    // The headers go out with the first bytes.
    stream.send(': keepalive\n\n');
    tellOfPending(stream, actions).catch((error: unknown) => {
      request.log.error({ err: error, requestId: request.id }, 'a discovery stream does not know its actions');
      stream.end('failed');
    });
    return presence.opened(tenantId, agentId);
  });
}

async function tellOfPending(stream: SseStream, actions: ActionIndex): Promise<void> {
  const { tenantId, principalId: agentId } = stream.caller;
  try {
    const [first] = await actions.pending(tenantId, agentId, 1);
    if (first !== undefined) stream.send(WORK_AVAILABLE);
  } catch (error) {
    if (!(error instanceof ReadStoreUnavailableError)) throw error;
    // Nobody can tell just now. A hint too many costs a look, one that is missing leaves work lying.
    stream.send(WORK_AVAILABLE);
  }
}
