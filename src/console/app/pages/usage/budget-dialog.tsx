import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Budget } from '../../../../client/client.ts';
import { useAgentIds } from '../../api/agent-ids.ts';
import { budgetsWith, useSaveBudget } from '../../api/budgets.ts';
import type { BudgetToSave } from '../../api/budgets.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Failure } from '../../parts/page.tsx';

interface Form {
  readonly scope: Budget['scope'];
  /** An agent or a session, by the scope. */
  readonly of: string;
  readonly period: Budget['period'];
  readonly usd: string;
  readonly tokens: string;
}

const SCOPES = ['tenant', 'agent', 'session'] as const;
const PERIODS = ['day', 'month', 'total'] as const;

function formOf(budget: Budget | null): Form {
  const { scope = 'tenant', agentId, sessionId, period = 'month', limitUsd, limitTokens } = budget ?? {};
  const of = agentId ?? sessionId ?? '';
  return { scope, of, period, usd: limitUsd?.toString() ?? '', tokens: limitTokens?.toString() ?? '' };
}

function budgetIn(id: string | null, { scope, of, period, usd, tokens }: Form): BudgetToSave {
  return {
    ...(id === null ? {} : { id }),
    ...{ scope, period },
    ...(scope === 'agent' ? { agentId: of.trim() } : scope === 'session' ? { sessionId: of.trim() } : {}),
    ...(usd.trim() === '' ? {} : { limitUsd: Number(usd) }),
    ...(tokens.trim() === '' ? {} : { limitTokens: Number(tokens) }),
  };
}

interface BudgetDialogProps {
  /** null: a new one. */
  readonly budget: Budget | null;
  /** As they are now. */
  readonly all: readonly Budget[];
  readonly onClose: () => void;
}

/** A budget is set by what it covers; its list is saved as a whole. */
export function BudgetDialog({ budget, all, onClose }: BudgetDialogProps): ReactNode {
  const [form, setForm] = useState(() => formOf(budget));
  const id = budget?.id ?? null;
  const save = useSaveBudget(onClose);
  const saved = budgetIn(id, form);
  const set = (name: keyof Form) => (event: { readonly target: { readonly value: string } }) =>
    setForm({ ...form, [name]: event.target.value });
  return (
    <Dialog title={budget === null ? 'New budget' : `Change ${budget.id}`} isOpen onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate({ id, budget: saved });
        }}
      >
        <Cover form={form} set={set} isFixed={budget !== null} />
        <label className="field">
          US dollars (may be empty)
          <input className="input" type="number" min="0" step="any" value={form.usd} onChange={set('usd')} />
        </label>
        <label className="field">
          Tokens (may be empty)
          <input className="input" type="number" min="0" step="1" value={form.tokens} onChange={set('tokens')} />
        </label>
        {save.error !== null && <Failure error={save.error} />}
        <div className="dialog-foot">
          <AsCode calls={[{ operation: 'PUT /v1/tenant/budgets', body: { budgets: budgetsWith(all, id, saved) } }]} />
          <Button className="spread" onClick={onClose}>
            Cancel
          </Button>
          <Button kind="primary" type="submit" disabled={save.isPending || (form.usd === '' && form.tokens === '')}>
            Save
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

interface CoverProps {
  readonly form: Form;
  readonly set: (name: keyof Form) => (event: { readonly target: { readonly value: string } }) => void;
  /** What a budget is of does not change: it is another budget then. */
  readonly isFixed: boolean;
}

function Cover({ form, set, isFixed }: CoverProps): ReactNode {
  const agents = useAgentIds();
  return (
    <>
      <label className="field">
        Covers
        <select className="input" value={form.scope} onChange={set('scope')} disabled={isFixed}>
          {SCOPES.map((scope) => (
            <option key={scope} value={scope}>
              {scope === 'tenant' ? 'the whole tenant' : `one ${scope}`}
            </option>
          ))}
        </select>
      </label>
      {form.scope !== 'tenant' && (
        <label className="field">
          {form.scope === 'agent' ? 'Agent' : 'Session'}
          <input
            className="input"
            list="budget-agents"
            required
            value={form.of}
            onChange={set('of')}
            disabled={isFixed}
          />
          <datalist id="budget-agents">
            {form.scope === 'agent' && agents.map((agent) => <option key={agent}>{agent}</option>)}
          </datalist>
        </label>
      )}
      <label className="field">
        Period
        <select className="input" value={form.period} onChange={set('period')} disabled={isFixed}>
          {PERIODS.map((period) => (
            <option key={period} value={period}>
              {period === 'total' ? 'in all' : `each ${period}`}
            </option>
          ))}
        </select>
      </label>
    </>
  );
}
