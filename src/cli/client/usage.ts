import type { Client, Operations } from '../../client/client.ts';
import { numberOf, readArguments } from '../arguments.ts';
import { misuse } from '../../lib/start-error.ts';
import { optionsOf } from '../catalog/callers.ts';
import { withClient } from './context.ts';
import type { Environment } from './context-file.ts';
import { print, sparkline, table } from './output.ts';

const DAY_MS = 86_400_000;
const DAYS = '30';
const DAYS_MAX = 366;
const KEYS = ['model', 'agent', 'session', 'day'] as const;
type Report = Operations['GET /v1/tenant/usage']['answer'];
type Query = NonNullable<Operations['GET /v1/tenant/usage']['query']>;

/** `agent-host usage`: what model calls used in the last days, added up, and a line of the days. */
export async function usage(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('usage'));
  const groupBy = KEYS.find((key) => key === (values.by ?? 'model')) ?? misuse(`--by is one of ${KEYS.join(', ')}`);
  const days = numberOf('days', values.days ?? DAYS, { least: 1, whole: true });
  if (days > DAYS_MAX) misuse(`--days is at most ${DAYS_MAX}`);
  return await withClient(env, values.context, async (client) => {
    const to = new Date();
    const range = { from: new Date(to.getTime() - days * DAY_MS).toISOString(), to: to.toISOString() };
    const report = await allGroups(client, { ...range, groupBy });
    const rows = [...report.groups, { key: 'total', ...report.total }];
    if (values.json === true) return print(rows, true, () => '');
    const daily = groupBy === 'day' ? report : await allGroups(client, { ...range, groupBy: 'day' });
    return print(rows, false, () => {
      const cells = rows.map(({ key, calls, usage: used }) => [
        key,
        `${calls}`,
        `${used.totalTokens}`,
        used.costUsd.toFixed(4),
      ]);
      return `${table([groupBy.toUpperCase(), 'CALLS', 'TOKENS', 'USD'], cells)}${daysLine(daily, to, days)}`;
    });
  });
}

async function allGroups(client: Client, query: Query): Promise<Report> {
  let report = await client.request('GET /v1/tenant/usage', { query });
  const groups = [...report.groups];
  const { total } = report;
  while (report.nextCursor !== null) {
    report = await client.request('GET /v1/tenant/usage', { query: { ...query, cursor: report.nextCursor } });
    groups.push(...report.groups);
  }
  return { ...report, groups, total };
}

/** Tokens of each day, the oldest first; days without calls are blanks. */
function daysLine({ groups }: Report, to: Date, days: number): string {
  const tokens = new Map(groups.map(({ key, usage: used }) => [key, used.totalTokens]));
  const names = Array.from({ length: days + 1 }, (_, at) =>
    new Date(to.getTime() - (days - at) * DAY_MS).toISOString().slice(0, 10),
  );
  const line = sparkline(names.map((name) => tokens.get(name) ?? 0));
  return `\nTokens a day, ${names[0]} to ${names.at(-1)} (UTC):\n|${line}|\n`;
}
