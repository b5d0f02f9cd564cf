import { delay } from '#src/lib/backoff.ts';
import { budgetList } from '#src/http/wire/budgets.ts';
import { interactionList } from '#src/http/wire/interactions.ts';
import type { TenantClient } from '../support/client.ts';
import type { Random } from '../support/random.ts';
import type { Sender } from './sender.ts';
import { SESSION_TOKENS, TENANT_TOKENS } from './world.ts';

export interface PeopleOptions {
  readonly tenant: TenantClient;
  readonly sessions: readonly string[];
  readonly sender: Sender;
  readonly random: Random;
  readonly stop: AbortSignal;
}

const PAUSE_MS = 300;

/** People who answer what is asked of them: approvals, budgets, and what is uncertain. They look until they are stopped. */
export async function people(options: PeopleOptions): Promise<void> {
  const { sessions, stop } = options;
  for (let turn = 0; !stop.aborted; turn++) {
    await answerInbox(options);
    const id = sessions[turn % sessions.length];
    if (id !== undefined) await resolveUncertain(options, id);
    await delay(PAUSE_MS, stop);
  }
}

async function answerInbox({ tenant, sender, random }: PeopleOptions): Promise<void> {
  const answer = await tenant.request({ path: '/v1/interactions?limit=50' }).catch(() => null);
  if (answer?.status !== 200) return;
  const { interactions } = interactionList.parse(answer.json);
  for (const { interactionId, kind, sessionId, budgetId } of interactions) {
    if (kind === 'approval') {
      await sender.command(sessionId, { type: 'approve', interactionId, approved: random.int(0, 4) > 0 });
      continue;
    }
    const limitTokens = budgetId === undefined ? null : await raisedLimit(tenant, budgetId);
    const value = limitTokens === null ? 'yes' : { raise: random.int(0, 3) > 0 ? { limitTokens } : false };
    await sender.command(sessionId, { type: 'respond', interactionId, value });
  }
}

/** Somewhat more than has been spent. */
async function raisedLimit(tenant: TenantClient, budgetId: string): Promise<number> {
  const answer = await tenant.request({ path: '/v1/tenant/budgets' }).catch(() => null);
  const budgets = answer?.status === 200 ? budgetList.parse(answer.json).budgets : [];
  return (budgets.find(({ id }) => id === budgetId)?.spentTokens ?? TENANT_TOKENS) + SESSION_TOKENS;
}

/** Of an effect nobody knows the end of: mostly it is run again, sometimes it counts as failed. */
export async function resolveUncertain(
  { tenant, sender, random }: Pick<PeopleOptions, 'tenant' | 'sender' | 'random'>,
  id: string,
): Promise<void> {
  const session = await tenant.session(id).catch(() => null);
  for (const wait of session?.waits ?? []) {
    if (wait.kind !== 'effect') continue;
    const resolution = random.int(0, 3) > 0 ? 'retry' : 'fail';
    await sender.command(id, { type: 'respond', interactionId: wait.id, value: { resolution } });
  }
}
