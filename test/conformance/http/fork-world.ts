import * as wire from '#src/http/wire/schemas.ts';
import type { Answer, EventRecord, SessionView, TenantClient } from '../../support/client.ts';
import { fresh, newSession, newTenant, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** Sessions to fork, and how forks are made and looked at. */

export const CALL = { toolCalls: [{ name: 'absent', input: {} }] };

interface ForkBody {
  readonly requestId: string;
  readonly idempotencyKey: string;
  readonly id: string;
  readonly cursor?: string | undefined;
}

export async function post(tenant: TenantClient, parent: string, body: Partial<ForkBody>): Promise<Answer> {
  const whole = { requestId: 'r', idempotencyKey: fresh('k'), id: fresh('f'), ...body };
  return await tenant.request({ method: 'POST', path: `/v1/sessions/${parent}/fork`, body: whole });
}

export async function fork(tenant: TenantClient, parent: string, body: Partial<ForkBody> = {}): Promise<SessionView> {
  return shaped(await post(tenant, parent, body), 201, wire.session);
}

export async function said(tenant: TenantClient, id: string, steps: readonly unknown[] | string): Promise<EventRecord> {
  const { turnId } = typeof steps === 'string' ? await tenant.message(id, steps) : await tenant.play(id, steps);
  return await tenant.turnEnd(id, turnId);
}

/** A record without what says whose it is. */
export function bare({ eventId, turnId, createdAt, type, payload }: EventRecord): object {
  return { eventId, turnId, createdAt, type, payload };
}

export async function remove(tenant: TenantClient, id: string): Promise<Answer> {
  return await tenant.request({ method: 'DELETE', path: `/v1/sessions/${id}` });
}

/** A session with a history, at both nodes. */
export interface Forked {
  readonly tenant: TenantClient;
  readonly other: TenantClient;
  readonly id: string;
  readonly items: readonly EventRecord[];
}

export async function parentAt(target: HttpTarget): Promise<Forked> {
  const tenant = await newTenant(target);
  const id = await newSession(tenant, { info: { a: 1 }, labels: { team: 'x' } });
  await said(tenant, id, 'one');
  await said(tenant, id, [CALL, { text: 'b' }]);
  return { tenant, other: tenant.at(target.nodes[1]), id, items: await tenant.items(id) };
}
