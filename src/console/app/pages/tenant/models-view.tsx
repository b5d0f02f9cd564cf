import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { ListModelsResponse, TenantModel } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { short, usd } from '../../lib/format.ts';
import { Button, RowButton } from '../../parts/button.tsx';
import { Choice, Field, FormDialog, SecretField } from '../../parts/form-dialog.tsx';
import { Loaded } from '../../parts/page.tsx';
import { Status } from '../../parts/status.tsx';
import { PricesSection } from './prices-section.tsx';
import { ACTIONS, Section, Table } from './section.tsx';

type Provider = ListModelsResponse['providers'][number];
type Remote = Exclude<Provider['id'], 'fixture'>;

const KEY = ['tenant', 'model'] as const;
const SELECTION = 'PUT /v1/tenant/model/selection';
const SAVE = 'PUT /v1/tenant/model';
const SAVE_KEY = 'PUT /v1/tenant/model/credentials/{provider}';
const DELETE_KEY = 'DELETE /v1/tenant/model/credentials/{provider}';

/** Which model answers where an agent names none, the keys for providers, and what they cost. */
export function ModelsView(): ReactNode {
  const client = useClient();
  const [isSelecting, setSelecting] = useState(false);
  const model = useQuery({
    queryKey: [...KEY, 'selection'],
    queryFn: async ({ signal }) => await client.request('GET /v1/tenant/model', { signal }),
  });
  const catalog = useQuery({
    queryKey: [...KEY, 'catalog'],
    queryFn: async ({ signal }) => await client.request('GET /v1/tenant/model/catalog', { signal }),
  });
  const providers = catalog.data?.providers ?? [];
  return (
    <>
      <Section
        title="Model"
        about="Of turns whose agent names none."
        call={{ operation: 'GET /v1/tenant/model' }}
        actions={
          <Button disabled={model.data === undefined || providers.length === 0} onClick={() => setSelecting(true)}>
            Select
          </Button>
        }
      >
        <Loaded query={model}>{(data) => <Selected model={data} />}</Loaded>
        {isSelecting && model.data !== undefined && (
          <Select model={model.data} providers={providers} onClose={() => setSelecting(false)} />
        )}
      </Section>
      <Section
        title="Providers"
        about="A key goes in, is sealed, and is never shown again."
        call={{ operation: 'GET /v1/tenant/model/catalog' }}
      >
        <Loaded query={catalog}>{(data) => <Providers providers={data.providers} />}</Loaded>
      </Section>
      <PricesSection />
    </>
  );
}

function Selected({ model }: { readonly model: TenantModel }): ReactNode {
  if (!model.configured && model.provider === undefined) return <p className="muted">No model is selected.</p>;
  return (
    <dl className="facts">
      <dt>Model</dt>
      <dd>
        <code>
          {model.provider}/{model.model}
        </code>
      </dd>
      {model.baseUrl !== undefined && (
        <>
          <dt>Address</dt>
          <dd>
            <code>{model.baseUrl}</code>
          </dd>
        </>
      )}
      {model.settings !== undefined && (
        <>
          <dt>Settings</dt>
          <dd>
            <code>{JSON.stringify(model.settings)}</code>
          </dd>
        </>
      )}
    </dl>
  );
}

interface SelectProps {
  readonly model: TenantModel;
  readonly providers: readonly Provider[];
  readonly onClose: () => void;
}

function Select({ model, providers, onClose }: SelectProps): ReactNode {
  const client = useClient();
  const first = model.provider ?? providers[0]?.id ?? 'openai';
  return (
    <FormDialog
      title="Select a model"
      verb="Select"
      call={{ operation: SELECTION, body: { provider: first, model: model.model ?? '…' } }}
      act={async (typed) => {
        const provider = providers.find(({ id }) => id === typed('provider'))?.id ?? first;
        const body = { provider, model: typed('model') };
        const baseUrl = typed('baseUrl');
        const isSame = provider === model.provider && baseUrl === (model.baseUrl ?? '');
        if (isSame || baseUrl === '') await client.request(SELECTION, { body });
        else {
          const apiKey = typed('apiKey');
          const { settings } = model;
          const more = { baseUrl, settings, ...(apiKey === '' ? {} : { credential: { apiKey } }) };
          await client.request(SAVE, { body: { ...body, ...more } });
        }
      }}
      changes={KEY}
      onClose={onClose}
    >
      <Choice label="Provider" name="provider" of={providers.map(({ id }) => id)} value={first} />
      <Field
        label="Model"
        name="model"
        value={model.model}
        list={providers.flatMap(({ models }) => models.map(({ id }) => id))}
        isRequired
      />
      <Field label="Address of the server, where it is your own" name="baseUrl" type="url" value={model.baseUrl} />
      <SecretField label="Key for another address (may be empty)" name="apiKey" />
    </FormDialog>
  );
}

type Doing = { readonly what: 'save' | 'delete'; readonly provider: Remote };

function Providers({ providers }: { readonly providers: readonly Provider[] }): ReactNode {
  const [doing, setDoing] = useState<Doing | null>(null);
  return (
    <>
      <Table
        empty="There are no providers."
        head={[
          <th key="provider">Provider</th>,
          <th key="key">Can be called</th>,
          <th key="models">Models</th>,
          ACTIONS,
        ]}
        rows={providers.map(({ id, name, configured, models }) => (
          <tr key={id}>
            <td>
              {name} <code className="small muted">{id}</code>
            </td>
            <td>
              <Status of={configured ? 'ready' : 'no key'} />
            </td>
            <td>
              <Catalog models={models} />
            </td>
            <td className="row-actions">
              {id !== 'fixture' && (
                <>
                  <RowButton name={`Store a key for ${name}`} onClick={() => setDoing({ what: 'save', provider: id })}>
                    Store a key
                  </RowButton>
                  <RowButton
                    name={`Remove the key for ${name}`}
                    disabled={!configured}
                    onClick={() => setDoing({ what: 'delete', provider: id })}
                  >
                    Remove
                  </RowButton>
                </>
              )}
            </td>
          </tr>
        ))}
      />
      {doing !== null && <ProviderKey doing={doing} onClose={() => setDoing(null)} />}
    </>
  );
}

/** Models whose prices are known. */
function Catalog({ models }: { readonly models: Provider['models'] }): ReactNode {
  if (models.length === 0) return <span className="muted">any</span>;
  return (
    <details>
      <summary>{models.length}</summary>
      {/* A scrolling region has to be reachable by keyboard. */}
      {/* oxlint-disable-next-line jsx-a11y/no-noninteractive-tabindex */}
      <ul className="catalog small" tabIndex={0}>
        {models.map(({ id, contextWindow, inputUsdPerMillion, outputUsdPerMillion }) => (
          <li key={id}>
            <code>{id}</code>{' '}
            <span className="muted">
              {inputUsdPerMillion !== undefined && `${usd(inputUsdPerMillion)} in`}
              {outputUsdPerMillion !== undefined && `, ${usd(outputUsdPerMillion)} out`}
              {contextWindow !== undefined && `, ${short(contextWindow)} tokens`}
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function ProviderKey({ doing, onClose }: { readonly doing: Doing; readonly onClose: () => void }): ReactNode {
  const client = useClient();
  const params = { provider: doing.provider };
  if (doing.what === 'save')
    return (
      <FormDialog
        title={`Store a key for ${doing.provider}`}
        about="It takes the place of the one that is there. The next call uses it."
        verb="Store"
        call={{ operation: SAVE_KEY, params, body: { apiKey: '…' } }}
        act={async (typed) => {
          await client.request(SAVE_KEY, { params, body: { apiKey: typed('apiKey') } });
        }}
        changes={KEY}
        onClose={onClose}
      >
        <SecretField label="Key" name="apiKey" isRequired />
      </FormDialog>
    );
  return (
    <FormDialog
      title={`Remove the key for ${doing.provider}?`}
      about="Calls of its models fail until there is another one."
      verb="Remove"
      kind="danger"
      call={{ operation: DELETE_KEY, params }}
      act={async () => await client.request(DELETE_KEY, { params })}
      changes={KEY}
      onClose={onClose}
    />
  );
}
