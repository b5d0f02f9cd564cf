import { createHmac, randomUUID } from 'node:crypto';
import { z } from 'zod';
import { send } from '../../support/client.ts';
import type { Answer, RawRequest, TenantClient } from '../../support/client.ts';
import { until } from '../../support/wait-until.ts';
import type { RouteRow } from './route-row.ts';
import { adminOf, newTenant, refused } from './target.ts';
import type { HttpTarget } from './target.ts';

export interface BadInputTarget extends HttpTarget {
  /** How many messages the log holds, where that can be looked at. */
  readonly logMessages?: () => Promise<number>;
}

export const ROOM = 'room/1';
/** Twice what a body may be, bytes. */
export const TOO_MUCH = 2 * 1_048_576;
export interface World {
  readonly tenant: TenantClient;
  readonly foreign: TenantClient;
  readonly studioKey: string;
  /** Of the agent `agent`. */
  readonly executorToken: string;
  /** Everything that a bad request could have changed. */
  readonly stored: () => Promise<unknown>;
}

export async function makeWorld(target: BadInputTarget): Promise<World> {
  const [tenant, foreign] = [await newTenant(target), await newTenant(target)];
  await tenant.openSession(ROOM);
  await tenant.openSession('room/2');
  for (const room of [ROOM, 'room/2']) {
    const { turnId } = await tenant.play(room, [{ toolCalls: [{ name: 'absent', input: {} }] }, { text: 'b' }]);
    await tenant.turnEnd(room, turnId);
  }
  for (const name of ['a', 'b']) {
    await tenant.request({ method: 'POST', path: `/v1/artifacts?name=${name}`, body: Buffer.from(name) });
  }
  const studioKey = createHmac('sha256', target.adminKey).update(`studio\0${tenant.tenantId}`).digest('hex');
  const executorToken = `executor-${randomUUID()}`;
  const executors = [{ agentId: 'agent', token: executorToken }];
  await tenant.request({ method: 'PUT', path: '/v1/executors', body: { executors } });
  const read = [
    ...['/v1/sessions', '/v1/sessions/room%2F1', '/v1/agents', '/v1/agents/agent', '/v1/agents/agent/versions'],
    ...['/v1/tenant', '/v1/tenant/keys', '/v1/tenant/issuers', '/v1/executors', '/v1/tenant/model'],
    '/v1/tenant/model/credentials/openai',
    ...['/v1/tenant/artifacts', '/v1/artifacts'],
  ];
  /** As it is stored: `asOf` is the time of the look. */
  const shown = async (of: TenantClient, path: string): Promise<unknown> => {
    const answer = await until(`${path} is answered`, async () => {
      const one = await of.request({ path });
      // A busy database answers later: that says nothing of what is stored.
      return one.status === 503 ? undefined : one;
    });
    const { asOf: _asOf, ...rest } = z.looseObject({}).parse(answer.json);
    return rest;
  };
  await rowsShowAll(tenant);
  const stored = async (): Promise<unknown> => ({
    items: await tenant.items(ROOM),
    reads: await Promise.all(read.map(async (path) => await shown(tenant, path))),
    foreign: await shown(foreign, '/v1/sessions'),
    tenants: (await adminOf(target).request({ path: '/v1/admin/tenants?limit=200' })).json,
    messages: await target.logMessages?.(),
  });
  return { tenant, foreign, studioKey, executorToken, stored };
}

/** Resolves when the lists and counts show what was made above: they follow the log, so a look right away sees less. */
async function rowsShowAll(tenant: TenantClient): Promise<void> {
  const sessionsEnded = z.object({ sessions: z.array(z.object({ lastTurn: z.object({}) })).length(2) });
  const counts = { sessions: 2, activeTurns: 0, executors: 1, artifactBytes: 2 };
  await until('the rows show all that was made', async () => {
    const status = z.looseObject({ counts: z.record(z.string(), z.number()) });
    const sessions = sessionsEnded.safeParse((await tenant.request({ path: '/v1/sessions' })).json);
    const shown = status.safeParse((await tenant.request({ path: '/v1/tenant' })).json);
    if (!sessions.success || !shown.success) return false;
    return Object.entries(counts).every(([name, count]) => shown.data.counts[name] === count);
  });
}

/** One route, called rightly but for what a case changes. */
export class Call {
  readonly name: string;
  readonly row: RouteRow;
  readonly method: string;
  readonly template: string;
  readonly #place: () => { readonly target: BadInputTarget; readonly world: World };

  constructor(name: string, row: RouteRow, place: () => { readonly target: BadInputTarget; readonly world: World }) {
    [this.method = 'GET', this.template = '/'] = name.split(' ');
    this.name = name;
    this.row = row;
    this.#place = place;
  }

  /** With its parameters filled in; `over` as they are, not encoded. */
  path(over: Readonly<Record<string, string>> = {}): string {
    return this.template.replaceAll(
      /\{(\w+)\}/g,
      (_, name: string) => over[name] ?? encodeURIComponent(this.row.params?.[name] ?? ''),
    );
  }

  get headers(): Record<string, string> {
    const { target, world } = this.#place();
    const { realm, credential } = this.row;
    if (realm === 'open') return {};
    if (realm === 'admin') return adminOf(target).headers;
    const other = { studio: bearer(world.studioKey), executor: bearer(world.executorToken) };
    return { ...world.tenant.headers, ...(credential === undefined ? {} : other[credential]) };
  }

  get adminKey(): string {
    return this.#place().target.adminKey;
  }

  get hasBody(): boolean {
    return this.row.bodies !== undefined;
  }

  /** A header of undefined is left out. */
  async send({ headers = {}, ...raw }: Partial<RawRequest>): Promise<Answer> {
    const all = Object.entries({ ...this.headers, ...headers }).filter(([, value]) => value !== undefined);
    const { url } = this.#place().target.nodes[0];
    return await send(url, { method: this.method, path: this.path(), ...raw, headers: Object.fromEntries(all) });
  }
}

function bearer(key: string): Record<string, string> {
  return { authorization: `Bearer ${key}` };
}

const issues = z.object({ issues: z.array(z.strictObject({ path: z.string(), message: z.string().min(1) })).min(1) });

/** What a refusal of an invalid request says is wrong, as `path: message`. */
export function invalid(answer: Answer): string[] {
  const { details } = refused(answer, 400, 'invalid_request');
  return issues.parse(details).issues.map(({ path, message }) => `${path}: ${message}`);
}
