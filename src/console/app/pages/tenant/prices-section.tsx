import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { ReactNode } from 'react';
import type { Client, ModelPrices } from '../../../../client/client.ts';
import { useClient } from '../../api/host.tsx';
import { short, usd } from '../../lib/format.ts';
import { Button, RowButton } from '../../parts/button.tsx';
import { Choice, Field, FormDialog } from '../../parts/form-dialog.tsx';
import type { Typed } from '../../parts/form-dialog.tsx';
import { Loaded } from '../../parts/page.tsx';
import { ACTIONS, Section, Table } from './section.tsx';

type Price = ModelPrices['prices'][number];
type Doing =
  | { readonly what: 'save'; readonly price: Price | null }
  | { readonly what: 'delete'; readonly price: Price };

const KEY = ['tenant', 'model', 'prices'] as const;
const READ = 'GET /v1/tenant/model/prices';
const SAVE = 'PUT /v1/tenant/model/prices';
const PROVIDERS = ['anthropic', 'openai', 'google', 'openai-compatible'] as const;

/** What the tenant pays, where it is not what the catalogue says. */
export function PricesSection(): ReactNode {
  const client = useClient();
  const [doing, setDoing] = useState<Doing | null>(null);
  const prices = useQuery({
    queryKey: KEY,
    queryFn: async ({ signal }) => await client.request(READ, { signal }),
  });
  return (
    <Section
      title="Prices of your own"
      about="They count before those of the catalogue, from the next call on; US dollars per million tokens."
      call={{ operation: READ }}
      actions={<Button onClick={() => setDoing({ what: 'save', price: null })}>New price</Button>}
    >
      <Loaded query={prices}>
        {(data) => (
          <Table
            empty="The prices of the catalogue count."
            head={[
              <th key="model">Model</th>,
              <th key="in" className="number">
                Input
              </th>,
              <th key="out" className="number">
                Output
              </th>,
              <th key="context" className="number wide">
                Context
              </th>,
              ACTIONS,
            ]}
            rows={data.prices.map((price) => (
              <tr key={nameOf(price)}>
                <td className="cut">
                  <code>{nameOf(price)}</code>
                </td>
                <td className="number">{usd(price.inputUsdPerMillion)}</td>
                <td className="number">{usd(price.outputUsdPerMillion)}</td>
                <td className="number wide">{price.contextWindow === undefined ? '' : short(price.contextWindow)}</td>
                <td className="row-actions">
                  <RowButton name={`Change ${nameOf(price)}`} onClick={() => setDoing({ what: 'save', price })}>
                    Change
                  </RowButton>
                  <RowButton name={`Remove ${nameOf(price)}`} onClick={() => setDoing({ what: 'delete', price })}>
                    Remove
                  </RowButton>
                </td>
              </tr>
            ))}
          />
        )}
      </Loaded>
      {doing !== null && <PriceDialog doing={doing} all={prices.data?.prices ?? []} onClose={() => setDoing(null)} />}
    </Section>
  );
}

function nameOf({ provider, model }: Pick<Price, 'provider' | 'model'>): string {
  return `${provider}/${model}`;
}

/** A list with one price put into it, or taken out: the API takes lists as a whole. */
function withPrice(prices: readonly Price[], name: string, price: Price | null): readonly Price[] {
  const others = prices.filter((one) => nameOf(one) !== name);
  return price === null ? others : [...others, price];
}

/** Changes the list as it is now, whatever was shown. */
async function change(client: Client, name: string, price: Price | null): Promise<void> {
  const { prices } = await client.request(READ, {});
  await client.request(SAVE, { body: { prices: withPrice(prices, name, price) } });
}

function priceIn(typed: Typed, before: Price | null): Price {
  const number = (name: string): number | undefined => (typed(name) === '' ? undefined : Number(typed(name)));
  return {
    provider: before?.provider ?? PROVIDERS.find((one) => one === typed('provider')) ?? PROVIDERS[0],
    model: before?.model ?? typed('model'),
    inputUsdPerMillion: Number(typed('input')),
    outputUsdPerMillion: Number(typed('output')),
    cacheReadUsdPerMillion: number('cacheRead'),
    cacheWriteUsdPerMillion: number('cacheWrite'),
    contextWindow: number('context'),
  };
}

interface PriceDialogProps {
  readonly doing: Doing;
  readonly all: readonly Price[];
  readonly onClose: () => void;
}

function PriceDialog({ doing, all, onClose }: PriceDialogProps): ReactNode {
  const client = useClient();
  const { price } = doing;
  const name = price === null ? '' : nameOf(price);
  const shown = price ?? { provider: 'openai', model: '…', inputUsdPerMillion: 1, outputUsdPerMillion: 4 };
  const isDeleted = doing.what === 'delete';
  return (
    <FormDialog
      title={isDeleted ? `Remove the price of ${name}?` : price === null ? 'New price' : `Change ${name}`}
      verb={isDeleted ? 'Remove' : 'Save'}
      kind={isDeleted ? 'danger' : 'primary'}
      call={{ operation: SAVE, body: { prices: withPrice(all, name, isDeleted ? null : shown) } }}
      act={async (typed) => {
        const saved = isDeleted ? null : priceIn(typed, price);
        await change(client, saved === null ? name : nameOf(saved), saved);
      }}
      changes={KEY}
      onClose={onClose}
    >
      {!isDeleted && <PriceFields price={price} />}
    </FormDialog>
  );
}

/** Of a new price also which model it is of. */
function PriceFields({ price }: { readonly price: Price | null }): ReactNode {
  const { inputUsdPerMillion, outputUsdPerMillion, cacheReadUsdPerMillion, cacheWriteUsdPerMillion, contextWindow } =
    price ?? {};
  const fields = [
    ['Input', 'input', inputUsdPerMillion, true],
    ['Output', 'output', outputUsdPerMillion, true],
    ['Input that a cache had (may be empty)', 'cacheRead', cacheReadUsdPerMillion, false],
    ['Input that is put into one (may be empty)', 'cacheWrite', cacheWriteUsdPerMillion, false],
    ['Tokens that the model accepts (may be empty)', 'context', contextWindow, false],
  ] as const;
  return (
    <>
      {price === null && (
        <>
          <Choice label="Provider" name="provider" of={PROVIDERS} />
          <Field label="Model" name="model" isRequired />
        </>
      )}
      {fields.map(([label, name, value, isRequired]) => (
        <Field key={name} {...{ label, name, isRequired }} type="number" value={value?.toString()} />
      ))}
    </>
  );
}
