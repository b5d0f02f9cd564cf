import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import type { Budget, SaveBudgetsRequest } from '../../../client/client.ts';
import { useClient } from './host.tsx';

export type BudgetToSave = SaveBudgetsRequest['budgets'][number];

const KEY = ['budgets'] as const;
const EVERY_MS = 10_000;

export function useBudgets() {
  const client = useClient();
  return useQuery({
    queryKey: KEY,
    queryFn: async ({ signal }) => await client.request('GET /v1/tenant/budgets', { signal }),
    refetchInterval: EVERY_MS,
  });
}

/** A list with one budget replaced by its id, or put into it, or taken out: the API takes lists as a whole. */
export function budgetsWith(
  budgets: readonly Budget[],
  id: string | null,
  budget: BudgetToSave | null,
): readonly BudgetToSave[] {
  const others = budgets
    .filter((one) => one.id !== id)
    .map(({ spentUsd: _usd, spentTokens: _tokens, ...rest }): BudgetToSave => rest);
  return budget === null ? others : [...others, budget];
}

/** Changes the list as it is now, whatever was shown. */
export function useSaveBudget(onSaved: () => void) {
  const client = useClient();
  const queries = useQueryClient();
  return useMutation({
    mutationFn: async ({ id, budget }: { readonly id: string | null; readonly budget: BudgetToSave | null }) => {
      const { budgets } = await client.request('GET /v1/tenant/budgets', {});
      await client.request('PUT /v1/tenant/budgets', { body: { budgets: budgetsWith(budgets, id, budget) } });
    },
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: KEY });
      onSaved();
    },
  });
}
