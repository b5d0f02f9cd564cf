import { delay } from '#src/lib/backoff.ts';
import { interactionList } from '#src/http/wire/interactions.ts';
import type { TenantClient } from '../support/client.ts';
import type { Random } from '../support/random.ts';
import type { Sender } from './sender.ts';
import { SESSION_TOKENS } from './world.ts';

export interface PeopleOptions {
  readonly tenant: TenantClient;
  readonly sessions: readonly string[];
  readonly sender: Sender;
  readonly random: Random;
  readonly stop: AbortSignal;
}

const PAUSE_MS = 300;
const RAISED_TOKENS = 100;

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
    // What is raised is counted from the limit that is passed, which grows with every answer.
    const raise = { limitTokens: SESSION_TOKENS * random.int(2, RAISED_TOKENS) };
    const value = budgetId === undefined ? 'yes' : random.int(0, 3) > 0 ? { raise } : { raise: false };
    await sender.command(sessionId, { type: 'respond', interactionId, value });
  }
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
