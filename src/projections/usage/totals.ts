import { sql } from 'slonik';
import type { ListSqlToken } from 'slonik';
import { z } from 'zod';
import type { UsageTotal } from './report.ts';

const count = z.int();

/** Sums, as the kept ones are read. */
export const sumRow = z.object({
  calls: count,
  duplicates: count,
  inputTokens: count,
  outputTokens: count,
  totalTokens: count,
  cachedTokens: count,
  cacheWriteTokens: count,
  reasoningTokens: count,
  costUsd: z.number(),
  unreported: count,
  unpriced: count,
});

/** The sign of calls that are only added. */
export const ONE = sql.fragment`1`;

const NAMES: Readonly<Record<string, string>> = {
  ...{ calls: 'calls', duplicates: 'duplicates', unreported: 'unreported', unpriced: 'unpriced' },
  ...{ inputTokens: 'input_tokens', outputTokens: 'output_tokens', totalTokens: 'total_tokens' },
  ...{ cachedTokens: 'cached_tokens', cacheWriteTokens: 'cache_write_tokens', reasoningTokens: 'reasoning_tokens' },
};

/** The sum over all rows of `summed`, which have the columns of the kept sums. */
export const sumColumns: ListSqlToken = sql.join(
  [
    ...Object.entries(NAMES).map(
      ([name, column]) =>
        sql.fragment`coalesce(sum(${sql.identifier([column])}), 0)::int8 as ${sql.identifier([name])}`,
    ),
    sql.fragment`coalesce(sum(cost_usd), 0)::float8 as "costUsd"`,
  ],
  sql.fragment`, `,
);

export function totalOf({ calls, duplicates, unreported, unpriced, ...numbers }: z.infer<typeof sumRow>): UsageTotal {
  const { inputTokens, outputTokens, totalTokens, cachedTokens, cacheWriteTokens, reasoningTokens, costUsd } = numbers;
  const usage = {
    ...{ inputTokens, outputTokens, totalTokens, cachedTokens, cacheWriteTokens, reasoningTokens, costUsd },
    duplicate: duplicates > 0,
    tokensReported: unreported === 0,
    costKnown: unpriced === 0,
  };
  return { usage, calls, duplicates };
}
