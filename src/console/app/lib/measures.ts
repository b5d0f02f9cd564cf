import type { UsageGroup } from '../../../client/client.ts';
import { count, duration, short, usd } from './format.ts';

/** What of the use of models and sandboxes a chart shows. */
export interface Measure {
  readonly id: string;
  readonly name: string;
  readonly of: (group: Pick<UsageGroup, 'usage' | 'calls' | 'sandboxSeconds'>) => number;
  readonly shown: (value: number) => string;
}

const COST: Measure = { id: 'cost', name: 'Cost', of: ({ usage }) => usage.costUsd, shown: usd };

export const MEASURES: readonly Measure[] = [
  COST,
  { id: 'tokens', name: 'Tokens', of: ({ usage }) => usage.totalTokens, shown: short },
  { id: 'calls', name: 'Model calls', of: ({ calls }) => calls, shown: count },
  {
    id: 'sandboxes',
    name: 'Sandbox time',
    of: ({ sandboxSeconds }) => sandboxSeconds,
    shown: (seconds) => duration(seconds * 1_000),
  },
];

export function measureOf(id: string | undefined): Measure {
  return MEASURES.find((one) => one.id === id) ?? COST;
}
