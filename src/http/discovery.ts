import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Caller } from '../auth/caller.ts';
import type { ExecutorOf } from '../commands/session/action-locator.ts';
import type { ActionView } from '../projections/actions/views.ts';
import { viewToActionResponse } from './action-response.ts';
import type { EventStreams } from './sse.ts';

/** Which executors have a discovery stream open, on any node. */
export interface Presence {
  /** A stream was opened here; the function says that it has ended. */
  opened(tenantId: string, agentId: string): () => void;
  /** Agents whose executor is connected to some node; as other nodes reported, at most a few seconds old. */
  connected(tenantId: string): ReadonlySet<string>;
}

/** Tells of work that waits for executors, wherever it was offered. */
export interface WorkFeed {
  /**
   * Calls back when there is work, and whenever there is new work, with its first actions; a list or claim sent then,
   * to any node, finds them. Returns the function that stops listening.
   */
  listen(executor: ExecutorOf, onWork: (actions: readonly ActionView[]) => void): () => void;
}

export interface DiscoveryDeps {
  readonly streams: EventStreams;
  readonly work: WorkFeed;
  readonly presence: Presence;
}

/** Actions that one signal names, and their length together, characters; an executor lists the rest, or claims it. */
const NAMED_MAX = 20;
const NAMED_CHARS_MAX = 65_536;

function workAvailable(views: readonly ActionView[]): string {
  const actions: string[] = [];
  let chars = 0;
  for (const view of views.slice(0, NAMED_MAX)) {
    const action = JSON.stringify(viewToActionResponse(view));
    chars += action.length;
    if (chars > NAMED_CHARS_MAX) break;
    actions.push(action);
  }
  return `event: work_available\ndata: {"type":"work_available","actions":[${actions.join(',')}]}\n\n`;
}

/**
 * Opens the discovery stream of an executor: it says that there is work, and what.
 * @throws ProblemError rate_limited when the tenant has too many streams open
 */
export function discover(
  { streams, work, presence }: DiscoveryDeps,
  request: FastifyRequest,
  reply: FastifyReply,
  caller: Caller,
): void {
  const { tenantId, principalId: agentId } = caller;
  streams.openWith(request, reply, caller, (stream) => {
    // The headers go out with the first bytes.
    stream.send(': keepalive\n\n');
    const unlisten = work.listen({ tenantId, agentId }, (actions) => {
      // A reader that has not taken what waits for it learns from that, too, of the work.
      if (!stream.isSlow) stream.send(workAvailable(actions));
    });
    const left = presence.opened(tenantId, agentId);
    return () => {
      unlisten();
      left();
    };
  });
}
