import { useMutation, useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useRef, useState } from 'react';
import type { ReactNode } from 'react';
import type { Client, ListModelsResponse, Manifest } from '../../../../../client/client.ts';
import { useClient } from '../../../api/host.tsx';
import { AsCode } from '../../../parts/as-code.tsx';
import { Button } from '../../../parts/button.tsx';
import { Dialog } from '../../../parts/dialog.tsx';
import { Failure } from '../../../parts/page.tsx';

interface ForkDialogProps {
  readonly sessionId: string;
  /** The last record that the fork has. */
  readonly cursor: string;
  readonly isOnOtherModel: boolean;
  /** What is sent to it, unless it is changed. */
  readonly message: string;
  readonly onClose: () => void;
}

interface Form {
  readonly id: string;
  readonly message: string;
  readonly provider: string;
  readonly model: string;
}

type Provider = ListModelsResponse['providers'][number];

/** A new session with the history up to a record, which may go on at once, and on another model. */
export function ForkDialog({ sessionId, cursor, isOnOtherModel, message, onClose }: ForkDialogProps): ReactNode {
  const [form, setForm] = useState<Form>(() => ({ id: forkId(sessionId), message, provider: '', model: '' }));
  const set = (name: keyof Form) => (event: { readonly target: { readonly value: string } }) =>
    setForm({ ...form, [name]: event.target.value });
  const providers = useProviders(isOnOtherModel);
  const provider = providers.find(({ id }) => id === form.provider) ?? providers[0];
  const go = useFork({ sessionId, cursor, form, provider: isOnOtherModel ? provider : undefined });
  const isAnswered = provider !== undefined && form.message.trim() !== '' && form.model.trim() !== '';
  const isReady = form.id.trim() !== '' && (!isOnOtherModel || isAnswered);
  return (
    <Dialog title={isOnOtherModel ? 'Another model from here' : 'Fork from here'} isOpen onClose={onClose}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          go.mutate();
        }}
      >
        <p className="muted">
          A new session with the history up to this record, and the files of a virtual sandbox as they were. This
          session stays as it is.
        </p>
        <label className="field">
          Id of the fork
          <input className="input" value={form.id} onChange={set('id')} />
        </label>
        {isOnOtherModel && (
          <>
            <label className="field">
              Provider
              <select className="input" value={provider?.id ?? ''} onChange={set('provider')}>
                {providers.map(({ id, name }) => (
                  <option key={id} value={id}>
                    {name}
                  </option>
                ))}
              </select>
            </label>
            <label className="field">
              Model
              <input className="input" list="fork-models" value={form.model} onChange={set('model')} />
              <datalist id="fork-models">
                {provider?.models.map(({ id }) => (
                  <option key={id}>{id}</option>
                ))}
              </datalist>
            </label>
          </>
        )}
        <label className="field">
          {isOnOtherModel ? 'Message that it answers' : 'Message (may be empty)'}
          <textarea className="input" rows={3} value={form.message} onChange={set('message')} />
        </label>
        {go.error !== null && <Failure error={go.error} />}
        <div className="dialog-foot">
          <AsCode calls={codeOf(sessionId, cursor, form, isOnOtherModel)} />
          <Button className="spread" onClick={onClose}>
            Cancel
          </Button>
          <Button kind="primary" type="submit" disabled={!isReady || go.isPending}>
            Fork
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function forkId(sessionId: string): string {
  return `${sessionId}-fork-${crypto.randomUUID().slice(0, 4)}`;
}

/** Those that can be called. */
function useProviders(isWanted: boolean): readonly Provider[] {
  const client = useClient();
  const { data } = useQuery({
    queryKey: ['model', 'catalog'],
    queryFn: async ({ signal }) => await client.request('GET /v1/tenant/model/catalog', { signal }),
    enabled: isWanted,
    staleTime: 60_000,
  });
  return data?.providers.filter(({ configured }) => configured) ?? [];
}

interface ForkInput {
  readonly sessionId: string;
  readonly cursor: string;
  readonly form: Form;
  /** Of the other model; undefined: the fork's agent keeps its own. */
  readonly provider: Provider | undefined;
}

function useFork({ sessionId, cursor, form, provider }: ForkInput) {
  const client = useClient();
  const navigate = useNavigate();
  const made = useRef<string | null>(null);
  return useMutation({
    mutationFn: async () => {
      const id = form.id.trim();
      const manifest = provider === undefined ? undefined : await manifestWith(client, sessionId, { form, provider });
      // A message that was refused is sent again to the fork that is there.
      if (made.current !== id) await client.session(sessionId).fork(id, { cursor });
      made.current = id;
      if (form.message.trim() !== '') await client.session(id).send(form.message, { manifest });
      return id;
    },
    onSuccess: (id) => void navigate({ to: '/sessions/$sessionId', params: { sessionId: id }, search: {} }),
  });
}

/** A message may have a manifest for its own turn: the agent's, with the model replaced. */
async function manifestWith(
  client: Client,
  sessionId: string,
  { form, provider }: Pick<ForkInput, 'form'> & { readonly provider: Provider },
): Promise<Manifest> {
  const { agentId } = await client.session(sessionId).get();
  const { manifest } = await client.agents.get(agentId);
  return { ...manifest, model: { provider: provider.id, model: form.model.trim() } };
}

function codeOf(sessionId: string, cursor: string, { id, message, model }: Form, isOnOtherModel: boolean) {
  const own = (key: string) => ({ requestId: key, idempotencyKey: key });
  const fork = {
    operation: 'POST /v1/sessions/{sessionId}/fork',
    params: { sessionId },
    body: { ...own(`fork ${id}`), id, cursor },
  };
  if (message.trim() === '') return [fork];
  const manifest = isOnOtherModel ? { manifest: { instructions: '…', model: { provider: '…', model } } } : {};
  const body = { ...own(`message ${id}`), type: 'message', content: message, ...manifest };
  return [fork, { operation: 'POST /v1/sessions/{sessionId}/commands', params: { sessionId: id }, body }];
}
