import type { FastifyRequest } from 'fastify';
import { actorOf } from '../auth/caller.ts';
import { callerOf } from './gate.ts';

/** Who changes which tenant, under which request id: what every change of a tenant is recorded with. */
export function manageInput(
  request: FastifyRequest,
  requestId: string | undefined,
): { readonly tenantId: string; readonly actor: string; readonly causation: string } {
  const caller = callerOf(request);
  return { tenantId: caller.tenantId, actor: actorOf(caller), causation: requestId ?? request.id };
}
