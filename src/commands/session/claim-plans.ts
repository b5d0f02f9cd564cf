import { sha256Hex } from '../../lib/hash.ts';
import type { KeyValue } from '../../streams/key-value.ts';
import type { ActionLocation, ExecutorOf } from './action-locator.ts';

/** One action that a batch request is to get: in this generation or not at all. */
export type PlannedAction = Pick<ActionLocation, 'actionId' | 'sessionId' | 'generation'>;

export interface ClaimPlan {
  readonly revision: number;
  readonly actions: readonly PlannedAction[];
}

/** A repetition comes within seconds; what an older request claimed is found by its claims. */
const KEPT_MS = 600_000;

/**
 * What a request for several actions is to get, written down before the first of them is claimed: they are in several
 * sessions, so no single commit can take them all. A repeated request, on any node, after any crash, goes through the
 * same plan, and each claim in it is made once.
 */
export class ClaimPlans {
  readonly #bucket: KeyValue;

  constructor(bucket: KeyValue) {
    this.#bucket = bucket;
  }

  /** @throws UnavailableError (streams) */
  async read(executor: ExecutorOf, requestId: string): Promise<ClaimPlan | null> {
    const entry = await this.#bucket.get(keyOf(executor, requestId));
    if (entry === null) return null;
    // Written by `write` of some node.
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion
    const { actions } = JSON.parse(entry.value) as Pick<ClaimPlan, 'actions'>;
    return { revision: entry.revision, actions };
  }

  /**
   * Null: the request has a plan of another revision.
   * @throws UnavailableError (streams)
   */
  async write(
    executor: ExecutorOf,
    requestId: string,
    { revision: expected, actions: planned }: ClaimPlan,
  ): Promise<ClaimPlan | null> {
    const actions = planned.map(({ actionId, sessionId, generation }) => ({ actionId, sessionId, generation }));
    const options = { expected, ttlMs: KEPT_MS };
    const revision = await this.#bucket.swap(keyOf(executor, requestId), JSON.stringify({ actions }), options);
    return revision === null ? null : { revision, actions };
  }
}

function keyOf({ tenantId, agentId }: ExecutorOf, requestId: string): string {
  return `claims.${tenantId}.${sha256Hex(`${agentId}\0${requestId}`)}`;
}
