import type { EventRecord, TenantClient } from './client.ts';
import type { SseReader } from './sse.ts';
import { until } from './wait-until.ts';

export interface CrowdOptions {
  readonly sessions: number;
  /** Of each session, in one turn. */
  readonly commands: number;
  /** How long all of it may take, ms. */
  readonly withinMs: number;
}

export interface CrowdEnd {
  /** What was lost or mixed up, for people; empty: nothing was. */
  readonly problems: readonly string[];
  /** How long each command ran, ms. */
  readonly durationsMs: readonly number[];
}

/**
 * Sessions with virtual sandboxes of their own, all at once, of these tenants in turn: each adds its name to a file, command by
 * command, and sees what it has added before and nothing else.
 */
export async function crowd(tenants: readonly TenantClient[], options: CrowdOptions): Promise<CrowdEnd> {
  for (const tenant of tenants) await tenant.saveAgent('coder', { sandboxTools: ['bash'] });
  const members: Member[] = [];
  // Only the turns are at once: what prepares them is not what is tried.
  for (let n = 0; n < options.sessions; n++) members.push(await joined(tenants[n % tenants.length], `crowd-${n}`));
  await Promise.all(members.map(async (member) => await played(member, options)));
  const ends: CrowdEnd[] = [];
  for (const member of members) ends.push(await compared(member, options));
  return {
    problems: ends.flatMap(({ problems }) => problems),
    durationsMs: ends.flatMap(({ durationsMs }) => durationsMs),
  };
}

interface Member {
  readonly tenant: TenantClient;
  readonly id: string;
  readonly sandboxId: string;
  /** So that waiting costs the Host nothing. */
  readonly stream: SseReader;
}

async function joined(tenant: TenantClient | undefined, id: string): Promise<Member> {
  if (tenant === undefined) throw new Error('a crowd needs a tenant');
  const { sandboxId } = await tenant.openSession(id, { agentId: 'coder' });
  return { tenant, id, sandboxId: sandboxId ?? '', stream: await tenant.events(id) };
}

const linesOf = ({ tenant, id }: Member, commands: number): readonly string[] =>
  Array.from({ length: commands }, (_, n) => `${tenant.tenantId} ${id} ${n}\n`);

async function played(member: Member, { commands, withinMs }: CrowdOptions): Promise<void> {
  const { tenant, id, stream } = member;
  const toolCalls = linesOf(member, commands).map((line) => ({
    name: 'bash',
    input: { command: `echo '${line.trim()}' >> log; cat log` },
  }));
  await tenant.play(id, [{ toolCalls }, { text: 'done' }]);
  const isOver = (): boolean => stream.frames.some(({ event }) => /^turn\.(completed|failed|cancelled)$/.test(event));
  await until(`the turn of ${id} ends`, isOver, withinMs);
  stream.close();
}

async function compared(member: Member, { commands }: CrowdOptions): Promise<CrowdEnd> {
  const { tenant, id, sandboxId } = member;
  const added = linesOf(member, commands);
  const items = await tenant.items(id);
  const seen = items.flatMap((item) => (item.type === 'action.completed' ? [stdoutOf(item.payload.outcome)] : []));
  const wanted = added.map((_, n) => added.slice(0, n + 1).join(''));
  const problems = wanted.flatMap((text, n) =>
    seen[n] === text ? [] : [`${id}: command ${n} has ${JSON.stringify(seen[n])}`],
  );
  const { text } = await tenant.request({ path: `/v1/sandboxes/${sandboxId}/files/log` });
  if (text !== added.join('')) problems.push(`${id}: its file has ${JSON.stringify(text)}`);
  return { problems, durationsMs: items.flatMap(durationOf) };
}

function stdoutOf(outcome: unknown): unknown {
  return Reflect.get(Object(Reflect.get(Object(outcome), 'output')), 'stdout');
}

function durationOf(item: EventRecord): number[] {
  return item.type === 'sandbox.exec' ? [item.payload.durationMs] : [];
}
