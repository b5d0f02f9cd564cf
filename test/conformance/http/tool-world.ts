import { expect } from 'vitest';
import type { z } from 'zod';
import type { record as recordShape } from '#src/http/wire/events.ts';
import * as wire from '#src/http/wire/schemas.ts';
import type { EventRecord, SessionView, TenantClient } from '../../support/client.ts';
import { until } from '../../support/wait-until.ts';
import { fresh, newTenant, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

/** A tenant whose agents have tools, and how a turn of theirs is looked at. */

const anything = { type: 'object' };
export const TOOLS = [
  { name: 'find', description: 'Finds.', inputSchema: anything },
  { name: 'careful', inputSchema: anything, approval: 'always' },
  {
    name: 'strict',
    inputSchema: { type: 'object', properties: { q: { type: 'number' } }, required: ['q'] },
    outputSchema: { type: 'number' },
  },
];

/** A call of a tool, as the fixture model makes it. */
export const call = (name: string, input: unknown = {}) => ({ toolCalls: [{ name, input }] });

export async function newToolTenant(target: HttpTarget, manifest: Record<string, unknown> = {}): Promise<TenantClient> {
  const tenant = await newTenant(target);
  await tenant.saveAgent('agent', { tools: TOOLS, ...manifest });
  return tenant;
}

/** A new session that plays a script; the turn has only just begun. */
export async function play(
  tenant: TenantClient,
  steps: readonly unknown[],
  body: Record<string, unknown> = {},
): Promise<{ readonly id: string; readonly turnId: string }> {
  const id = fresh('t');
  await tenant.openSession(id, body);
  const { turnId } = await tenant.play(id, steps);
  return { id, turnId: turnId ?? '' };
}

type Shown = Pick<SessionView, 'status' | 'waits' | 'activeTurnId' | 'lastTurn'>;

function shown({ status, waits, activeTurnId, lastTurn }: SessionView): Shown {
  return { status, waits, activeTurnId, lastTurn };
}

/** Waits until the session has this status; then its PUT, GET and list on both nodes must come to say the same. */
export async function inStatus(
  target: HttpTarget,
  tenant: TenantClient,
  id: string,
  status: SessionView['status'],
): Promise<Shown> {
  const view = await until(`${id} is ${status}`, async () => {
    const found = await tenant.session(id);
    return found.status === status && found;
  });
  const wanted = shown(view);
  const agree = async (): Promise<boolean> => {
    const views = await Promise.all(target.nodes.flatMap((node) => everyView(tenant.at(node), id, view)));
    return views.every((one) => JSON.stringify(one) === JSON.stringify(wanted));
  };
  await until(`all answers about ${id} agree on ${JSON.stringify(wanted)}`, agree, 5_000);
  return wanted;
}

function everyView(
  tenant: TenantClient,
  id: string,
  { agentId, subject, info, labels }: SessionView,
): Promise<Shown>[] {
  const body = { agentId, info, labels, ...(subject === null ? {} : { subject }) };
  const listed = async (): Promise<Shown> => {
    const { sessions } = shaped(await tenant.request({ path: '/v1/sessions?limit=200' }), 200, wire.sessionList);
    const found = sessions.find((session) => session.id === id);
    if (found === undefined) throw new Error(`${id} is not in the list`);
    return shown(found);
  };
  return [tenant.openSession(id, body).then(shown), tenant.session(id).then(shown), listed()];
}

/** The records of a type, in order. */
export async function ofType(tenant: TenantClient, id: string, type: string): Promise<readonly EventRecord[]> {
  return (await tenant.items(id)).filter((item) => item.type === type);
}

/** Members of payloads that tests look into; which record has which is checked by `historyHolds`. */
export interface Payload {
  readonly kind?: string;
  readonly status?: string;
  readonly output?: unknown;
  readonly interactions?: readonly unknown[];
  readonly outcome?: {
    readonly kind: string;
    readonly code?: string;
    readonly message?: string;
    readonly output?: unknown;
  };
  readonly agent?: { readonly id: string; readonly path: string; readonly delegationId: string };
}

export function payload(record: z.output<typeof recordShape> | undefined): Payload {
  expect(record).toBeDefined();
  return Object(record?.payload) as Payload;
}

/** The output of a turn that completes. */
export async function outputOf(tenant: TenantClient, id: string, turnId: string): Promise<unknown> {
  const end = await tenant.turnEnd(id, turnId);
  expect(end.type, JSON.stringify(end.payload)).toBe('turn.completed');
  return payload(end).output;
}
