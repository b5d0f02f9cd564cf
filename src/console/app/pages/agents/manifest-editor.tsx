import { useMutation, useQueryClient } from '@tanstack/react-query';
import type { Schema } from '@cfworker/json-schema';
import { useDeferredValue, useMemo, useState } from 'react';
import type { ReactNode } from 'react';
import type { Manifest } from '../../../../client/client.ts';
import { useApiSchema } from '../../api/document.ts';
import { useClient } from '../../api/host.tsx';
import { schemaIssues } from '../../lib/schema-issues.ts';
import type { SchemaIssue } from '../../lib/schema-issues.ts';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Failure } from '../../parts/page.tsx';

interface ManifestEditorProps {
  readonly agentId: string;
  /** What is changed. */
  readonly manifest: Manifest;
  readonly onSaved: () => void;
}

const ISSUES_MAX = 20;

/** A definition as JSON, checked while it is written with the schema that the API publishes, and by the Host when it is saved. */
export function ManifestEditor({ agentId, manifest, onSaved }: ManifestEditorProps): ReactNode {
  const client = useClient();
  const queries = useQueryClient();
  const schema = useApiSchema('Manifest');
  const [text, setText] = useState(() => JSON.stringify(manifest, null, 2));
  const deferred = useDeferredValue(text);
  const { value, issues } = useMemo(() => checked(deferred, schema.data), [deferred, schema.data]);
  const save = useMutation({
    mutationFn: async () => {
      // The Host says what else is wrong with it: its word counts.
      const written: Manifest = JSON.parse(text);
      return await client.agents.save(agentId, written);
    },
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: ['agents'] });
      onSaved();
    },
  });
  const call = {
    operation: 'PUT /v1/agents/{agentId}',
    params: { agentId: agentId || 'my-agent' },
    body: { manifest: value },
  };
  return (
    <form
      className="stack"
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      <label className="field">
        Definition, as JSON
        <textarea
          className="input code"
          rows={22}
          spellCheck={false}
          aria-invalid={issues.length > 0}
          aria-describedby="manifest-issues"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
      </label>
      <div id="manifest-issues" aria-live="polite">
        <IssueList issues={issues} />
      </div>
      {schema.error !== null && <Failure error={schema.error} onRetry={() => void schema.refetch()} />}
      {save.error !== null && <Failure error={save.error} />}
      <div className="row">
        <AsCode calls={[call]} />
        <Button
          kind="primary"
          type="submit"
          className="spread"
          disabled={agentId === '' || issues.length > 0 || deferred !== text || save.isPending}
        >
          Save
        </Button>
      </div>
    </form>
  );
}

function IssueList({ issues }: { readonly issues: readonly SchemaIssue[] }): ReactNode {
  if (issues.length === 0) return <span className="small muted">As the schema of the API wants it.</span>;
  return (
    <ul className="problem issues small">
      {issues.slice(0, ISSUES_MAX).map(({ path, message }, index) => (
        // The same place may be wrong in the same words twice.
        <li key={index}>
          {path !== '' && <code>{path}</code>} {message}
        </li>
      ))}
      {issues.length > ISSUES_MAX && <li>… {issues.length - ISSUES_MAX} more</li>}
    </ul>
  );
}

interface Checked {
  readonly value: unknown;
  readonly issues: readonly SchemaIssue[];
}

function checked(text: string, schema: Schema | undefined): Checked {
  try {
    const value: unknown = JSON.parse(text);
    return { value, issues: schema === undefined ? [] : schemaIssues(schema, value) };
  } catch (error) {
    return {
      value: undefined,
      issues: [{ path: '', message: error instanceof Error ? error.message : 'is not JSON' }],
    };
  }
}
