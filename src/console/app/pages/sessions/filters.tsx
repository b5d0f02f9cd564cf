import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { SessionsSearch } from '../../searches.ts';
import { labelsIn } from './labels.ts';
import { STATUSES } from './statuses.ts';
import { useAgentIds } from '../../api/agent-ids.ts';

/** What is typed with `=` filters by labels; anything else is the id of a session, which Enter opens. */
export function Filters({ search }: { readonly search: SessionsSearch }): ReactNode {
  const navigate = useNavigate();
  const agents = useAgentIds();
  const [typed, setTyped] = useState(search.label ?? '');
  const change = (more: SessionsSearch): void =>
    void navigate({ to: '/sessions', search: { ...search, ...more }, replace: true });
  const submit = (): void => {
    const label = typed.trim();
    if (label === '' || labelsIn(label).length > 0) change({ label: label === '' ? undefined : label });
    else void navigate({ to: '/sessions/$sessionId', params: { sessionId: label }, search: {} });
  };
  return (
    <search>
      <form
        className="filters"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <input
          className="input grow"
          type="search"
          data-search=""
          aria-label="Labels, or a session’s id"
          placeholder="label=value, or a session’s id"
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
          onBlur={() => (labelsIn(typed).length > 0 || typed === '') && submit()}
        />
        <select
          className="input"
          aria-label="Status"
          value={search.status ?? ''}
          onChange={(event) => change({ status: event.target.value || undefined })}
        >
          <option value="">Any status</option>
          {STATUSES.map((status) => (
            <option key={status}>{status}</option>
          ))}
        </select>
        <select
          className="input"
          aria-label="Agent"
          value={search.agent ?? ''}
          onChange={(event) => change({ agent: event.target.value || undefined })}
        >
          <option value="">Any agent</option>
          {[...new Set([...agents, ...(search.agent === undefined ? [] : [search.agent])])].map((agent) => (
            <option key={agent}>{agent}</option>
          ))}
        </select>
      </form>
    </search>
  );
}
