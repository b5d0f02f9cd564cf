import { isUsageKnown } from '../../domain/turn/usage.ts';
import type { Usage } from '../../domain/turn/usage.ts';
import { DecimalSum } from '../../lib/decimals.ts';

/** A call that is added to the sums (1), or taken out of them (-1). */
export interface SignedCall {
  readonly tenant: string;
  readonly sessionId: string;
  readonly agentId: string;
  /** As `provider/model`. */
  readonly model: string;
  readonly at: string;
  readonly outcome: string;
  readonly usage: Usage;
  readonly sign: 1 | -1;
}

interface Alike {
  readonly of: Readonly<Record<string, string>>;
  readonly counts: Record<string, number>;
  readonly cost: DecimalSum;
  readonly silentCost: DecimalSum;
}

/**
 * Sums of the calls of the same session, agent, model and minute, which most calls of a turn are: rows with the columns of
 * the kept sums, as `sumsOfCalls` makes them of rows of calls.
 */
export function sumsOfChanges(calls: readonly SignedCall[]): readonly object[] {
  const all = new Map<string, Alike>();
  for (const call of calls) {
    const { tenant, sessionId, agentId, model, at, outcome, usage, sign } = call;
    if (outcome === 'pending' || outcome === 'withheld') continue;
    const minute = at.slice(0, 16);
    const id = `${tenant}\0${sessionId}\0${agentId}\0${model}\0${minute}`;
    const alike = all.get(id) ?? {
      of: { tenant, session_id: sessionId, agent_id: agentId, model, minute },
      ...{ counts: { ...NONE }, cost: new DecimalSum(), silentCost: new DecimalSum() },
    };
    all.set(id, alike);
    // A failed call of which nothing is known does not make a sum unknown.
    const isSilent = outcome === 'failed' && !isUsageKnown(usage);
    const cost = isSilent ? alike.silentCost : alike.cost;
    if (sign === 1) cost.add(usage.costUsd);
    else cost.subtract(usage.costUsd);
    for (const [name, value] of Object.entries(isSilent ? silentCounts(usage) : heardCounts(usage)))
      alike.counts[name] = (alike.counts[name] ?? 0) + sign * value;
  }
  return [...all.values()].map(({ of, counts, cost, silentCost }) => ({
    ...of,
    ...counts,
    cost_usd: cost.toString(),
    silent_usd: silentCost.toString(),
  }));
}

const NONE: Readonly<Record<string, number>> = {
  ...{ calls: 0, used: 0, duplicates: 0, unreported: 0, unpriced: 0 },
  ...{ input_tokens: 0, output_tokens: 0, total_tokens: 0, cached_tokens: 0 },
  ...{ cache_write_tokens: 0, reasoning_tokens: 0, silent_tokens: 0 },
};

function countsOf({ totalTokens, costUsd, duplicate }: Usage): Readonly<Record<string, number>> {
  return { calls: 1, used: totalTokens > 0 || costUsd > 0 ? 1 : 0, duplicates: duplicate ? 1 : 0 };
}

function silentCounts(usage: Usage): Readonly<Record<string, number>> {
  return { ...countsOf(usage), silent_tokens: usage.totalTokens };
}

function heardCounts(usage: Usage): Readonly<Record<string, number>> {
  return {
    ...countsOf(usage),
    unreported: usage.tokensReported ? 0 : 1,
    unpriced: usage.costKnown ? 0 : 1,
    input_tokens: usage.inputTokens,
    output_tokens: usage.outputTokens,
    total_tokens: usage.totalTokens,
    cached_tokens: usage.cachedTokens,
    cache_write_tokens: usage.cacheWriteTokens,
    reasoning_tokens: usage.reasoningTokens,
  };
}
