import { reject } from '../../../domain/kernel/rejection.ts';
import type { Rejection } from '../../../domain/kernel/rejection.ts';
import type { MessageContext } from '../../../domain/session/decide.ts';
import type { TurnContext } from '../../../domain/turn/context.ts';
import { newId } from '../../../lib/ids.ts';
import type { AggregateRef } from '../../../streams/subjects.ts';
import type { SendCommandDeps } from '../command-handler.ts';

/** Why a tenant accepts no command that starts a turn; null: it accepts them. */
export function refusedStart({ isDraining }: SendCommandDeps, { tenant }: AggregateRef): Rejection | null {
  return isDraining(tenant)
    ? reject('tenant_draining', 'The tenant is about to be deleted and takes no new message.')
    : null;
}

/** What a turn that starts now is given in addition to what every decision is. */
export function startContext(
  { tenantModel }: SendCommandDeps,
  { tenant }: AggregateRef,
  context: TurnContext,
): MessageContext {
  return { ...context, newTurnId: newId('tu'), tenantModel: tenantModel(tenant) };
}
