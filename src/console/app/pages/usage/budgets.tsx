import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Budget } from '../../../../client/client.ts';
import { budgetsWith, useBudgets, useSaveBudget } from '../../api/budgets.ts';
import { short, usd } from '../../lib/format.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Button, RowButton } from '../../parts/button.tsx';
import { FormDialog } from '../../parts/form-dialog.tsx';
import { Empty, Loaded } from '../../parts/page.tsx';
import { BudgetDialog } from './budget-dialog.tsx';

/** What model calls may cost in a period, and what of it is spent. */
export function Budgets(): ReactNode {
  const [edited, setEdited] = useState<Budget | 'new' | null>(null);
  const [removed, setRemoved] = useState<Budget | null>(null);
  const budgets = useBudgets();
  return (
    <section className="stack" aria-label="Budgets">
      <div className="row">
        <h2>Budgets</h2>
        <span className="spread row">
          <AsCode calls={[{ operation: 'GET /v1/tenant/budgets' }]} />
          <Button onClick={() => setEdited('new')}>New budget</Button>
        </span>
      </div>
      <Loaded query={budgets}>
        {(data) => <BudgetTable budgets={data.budgets} onEdit={setEdited} onRemove={setRemoved} />}
      </Loaded>
      {edited !== null && (
        <BudgetDialog
          budget={edited === 'new' ? null : edited}
          all={budgets.data?.budgets ?? []}
          onClose={() => setEdited(null)}
        />
      )}
      {removed !== null && (
        <RemoveBudget budget={removed} all={budgets.data?.budgets ?? []} onClose={() => setRemoved(null)} />
      )}
    </section>
  );
}

interface RemoveBudgetProps {
  readonly budget: Budget;
  readonly all: readonly Budget[];
  readonly onClose: () => void;
}

function RemoveBudget({ budget: { id }, all, onClose }: RemoveBudgetProps): ReactNode {
  const remove = useSaveBudget(() => undefined);
  return (
    <FormDialog
      title={`Remove ${id}?`}
      about="Model calls are not held up by it any more."
      verb="Remove"
      kind="danger"
      call={{ operation: 'PUT /v1/tenant/budgets', body: { budgets: budgetsWith(all, id, null) } }}
      act={async () => await remove.mutateAsync({ id, budget: null })}
      onClose={onClose}
    />
  );
}

interface BudgetTableProps {
  readonly budgets: readonly Budget[];
  readonly onEdit: (budget: Budget) => void;
  readonly onRemove: (budget: Budget) => void;
}

function BudgetTable({ budgets, onEdit, onRemove }: BudgetTableProps): ReactNode {
  if (budgets.length === 0)
    return (
      <div className="card">
        <Empty title="No budgets">
          <p>A call that would pass a budget pauses its turn, and asks a person.</p>
        </Empty>
      </div>
    );
  return (
    <div className="table-wrap">
      <table>
        <thead>
          <tr>
            <th>Budget</th>
            <th className="wide">Covers</th>
            <th>Spent</th>
            <th>
              <span className="hidden">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {budgets.map((budget) => (
            <tr key={budget.id}>
              <td>
                <bdi>{budget.id}</bdi>
              </td>
              <td className="wide">{coverOf(budget)}</td>
              <td>
                <Spent budget={budget} />
              </td>
              <td className="number">
                <RowButton name={`Change ${budget.id}`} onClick={() => onEdit(budget)}>
                  Change
                </RowButton>
                <RowButton name={`Remove ${budget.id}`} onClick={() => onRemove(budget)}>
                  Remove
                </RowButton>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const PERIODS = { day: 'each day', month: 'each month', total: 'in all' } as const;

function coverOf({ scope, agentId, sessionId, period }: Budget): ReactNode {
  const of = agentId ?? sessionId;
  return (
    <>
      {scope === 'tenant' ? 'the tenant' : `${scope} `}
      {of !== undefined && <bdi>{of}</bdi>}, {PERIODS[period]}
    </>
  );
}

function Spent({ budget }: { readonly budget: Budget }): ReactNode {
  const { id, limitUsd, limitTokens, spentUsd, spentTokens } = budget;
  const parts = [
    ...(limitUsd === undefined ? [] : [{ unit: 'USD', spent: spentUsd, limit: limitUsd, shown: usd }]),
    ...(limitTokens === undefined ? [] : [{ unit: 'tokens', spent: spentTokens, limit: limitTokens, shown: short }]),
  ];
  return (
    <div className="budget-spent">
      {parts.map(({ unit, spent, limit, shown }) => (
        <div key={unit}>
          <span className="small">
            {shown(spent)} of {shown(limit)}
            {unit === 'tokens' && ' tokens'}
          </span>
          <meter
            aria-label={`${unit} spent of ${id}`}
            max={limit}
            high={limit * 0.9}
            optimum={0}
            value={Math.min(spent, limit)}
          />
        </div>
      ))}
    </div>
  );
}
