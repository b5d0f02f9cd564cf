import type { Budget, Client, SaveBudgetsRequest } from '../../client/client.ts';
import { misuse, StartError } from '../../lib/start-error.ts';
import { numberOf, readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { withClient } from './context.ts';
import type { Environment } from './context-file.ts';
import { print, table } from './output.ts';

const PERIODS = ['day', 'month', 'total'] as const;
type Wanted = SaveBudgetsRequest['budgets'][number];

/** `agent-host budgets list`. */
export async function budgetsList(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('budgets list'));
  return await withClient(env, values.context, async (client) => {
    const { budgets } = await client.request('GET /v1/tenant/budgets', {});
    return show(budgets, values.json);
  });
}

/** `agent-host budgets set`: the others stay as they are. */
export async function budgetsSet(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('budgets set'));
  const { agent: agentId, session: sessionId, usd, tokens } = values;
  if (usd === undefined && tokens === undefined) misuse('name a limit: --usd <n>, --tokens <n>, or both');
  if (agentId !== undefined && sessionId !== undefined) misuse('a budget is for an agent or for a session');
  const period =
    PERIODS.find((one) => one === (values.period ?? 'month')) ?? misuse(`--period is ${PERIODS.join(', ')}`);
  const wanted: Wanted = {
    scope: agentId !== undefined ? 'agent' : sessionId !== undefined ? 'session' : 'tenant',
    ...{ agentId, sessionId, period },
    ...(usd === undefined ? {} : { limitUsd: numberOf('usd', usd) }),
    ...(tokens === undefined ? {} : { limitTokens: numberOf('tokens', tokens, { whole: true }) }),
  };
  return await withClient(env, values.context, async (client) => {
    const { budgets } = await client.request('GET /v1/tenant/budgets', {});
    const same = budgets.find((one) => placeOf(one) === placeOf(wanted));
    const others = budgets.filter((one) => one !== same).map(definitionOf);
    return show(await saved(client, [...others, { ...wanted, id: same?.id }]), values.json);
  });
}

/** `agent-host budgets remove <id>`. */
export async function budgetsRemove(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('budgets remove'));
  const id = words[0] ?? misuse('name the budget: agent-host budgets remove <id>');
  return await withClient(env, values.context, async (client) => {
    const { budgets } = await client.request('GET /v1/tenant/budgets', {});
    if (!budgets.some((one) => one.id === id)) throw new StartError(`there is no budget ${id}`, { code: 'not_found' });
    return show(await saved(client, budgets.filter((one) => one.id !== id).map(definitionOf)), values.json);
  });
}

/** What a budget is for: there is one of each. */
function placeOf({ scope, agentId = '', sessionId = '', period }: Wanted): string {
  return JSON.stringify([scope, agentId, sessionId, period]);
}

function definitionOf({ spentUsd: _usd, spentTokens: _tokens, ...definition }: Budget): Wanted {
  return definition;
}

async function saved(client: Client, budgets: readonly Wanted[]): Promise<readonly Budget[]> {
  return (await client.request('PUT /v1/tenant/budgets', { body: { budgets } })).budgets;
}

function show(budgets: readonly Budget[], asJson: boolean | undefined): number {
  return print(budgets, asJson, () =>
    table(
      ['BUDGET', 'FOR', 'PERIOD', 'SPENT', 'OF'],
      budgets.map((one) => [
        one.id,
        `${one.scope} ${one.agentId ?? one.sessionId ?? ''}`.trim(),
        one.period,
        amounts(
          one.limitUsd === undefined ? undefined : one.spentUsd,
          one.limitTokens === undefined ? undefined : one.spentTokens,
        ),
        amounts(one.limitUsd, one.limitTokens),
      ]),
    ),
  );
}

function amounts(usd: number | undefined, tokens: number | undefined): string {
  const shown = [usd === undefined ? '' : `${usd.toFixed(2)} USD`, tokens === undefined ? '' : `${tokens} tokens`];
  return shown.filter((one) => one !== '').join(', ');
}
