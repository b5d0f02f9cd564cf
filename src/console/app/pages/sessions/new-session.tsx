import { useMutation } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import type { ReactNode } from 'react';
import { useClient } from '../../api/host.tsx';
import { AsCode } from '../../parts/as-code.tsx';
import { Button } from '../../parts/button.tsx';
import { Dialog } from '../../parts/dialog.tsx';
import { Failure } from '../../parts/page.tsx';
import { labelObject } from './labels.ts';
import { useAgentIds } from '../../api/agent-ids.ts';

interface NewSessionProps {
  readonly agentId?: string | undefined;
  readonly onClose: () => void;
}

export function NewSession({ agentId: given, onClose }: NewSessionProps): ReactNode {
  const client = useClient();
  const navigate = useNavigate();
  const agents = useAgentIds();
  const [form, setForm] = useState({ agentId: given ?? '', id: '', labels: '', subject: '', message: '' });
  const agentId = form.agentId || agents[0] || '';
  const set = (name: keyof typeof form) => (event: { readonly target: { readonly value: string } }) =>
    setForm({ ...form, [name]: event.target.value });
  const body = {
    agentId,
    ...(form.labels.trim() === '' ? {} : { labels: labelObject(form.labels) }),
    ...(form.subject.trim() === '' ? {} : { subject: form.subject.trim() }),
  };
  const open = useMutation({
    mutationFn: async () => {
      const id = form.id.trim();
      const session = await client.sessions.open({ ...body, ...(id === '' ? {} : { id }) });
      if (form.message.trim() !== '') await session.send(form.message);
      return session.id;
    },
    onSuccess: (sessionId) => void navigate({ to: '/sessions/$sessionId', params: { sessionId }, search: {} }),
  });
  const call = { operation: 'PUT /v1/sessions/{sessionId}', params: { sessionId: form.id || 'my-session' }, body };
  return (
    <Dialog title="New session" isOpen onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          open.mutate();
        }}
      >
        <label className="field">
          Agent
          <select className="input" value={agentId} onChange={set('agentId')}>
            {agents.map((agent) => (
              <option key={agent}>{agent}</option>
            ))}
          </select>
        </label>
        <label className="field">
          Message
          <textarea className="input" rows={3} value={form.message} onChange={set('message')} />
        </label>
        <label className="field">
          Id (made when empty)
          <input className="input" value={form.id} onChange={set('id')} />
        </label>
        <label className="field">
          Labels
          <input className="input" placeholder="team=a env=b" value={form.labels} onChange={set('labels')} />
        </label>
        <label className="field">
          Subject, the person it is for (may be empty)
          <input className="input" value={form.subject} onChange={set('subject')} />
        </label>
        {open.error !== null && <Failure error={open.error} />}
        <div className="dialog-foot">
          <AsCode calls={[call]} />
          <Button className="spread" onClick={onClose}>
            Cancel
          </Button>
          <Button kind="primary" type="submit" disabled={agentId === '' || open.isPending}>
            Begin
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
