import { audit } from '../../projections/audit.ts';
import type { Config } from '../config.ts';
import { StartError } from '../start-error.ts';
import { readArguments } from './arguments.ts';
import { groupsNamed } from './rebuild.ts';
import { progressPrinter } from './progress.ts';
import { besideRunningHost } from './running-host.ts';

/** Rows that are printed one by one; the rest is counted. */
const SHOWN_MAX = 100;
const ROW_CHARS = 300;

/**
 * `agent-host audit replay [name] [--until <time>]`: rebuilds read models in a scratch schema and reports every row that
 * differs from the live one. Exit code 1 when any does.
 */
export async function auditReplay(config: Config, args: readonly string[]): Promise<number> {
  const { name, untilMs } = readReplay(args);
  const groups = groupsNamed(name);
  return await besideRunningHost(config, 'audit', async ({ log, pool, logger }) => {
    let found = 0;
    for (const group of groups) {
      const begun = performance.now();
      const progress = progressPrinter();
      const { rows, differences } = await audit({
        ...{ pool, source: log.source, group, logger, untilMs },
        onProgress: progress.show,
        onDifference: ({ table, side, row }) => {
          found++;
          if (found <= SHOWN_MAX) process.stdout.write(`${table}: ${side}: ${row.slice(0, ROW_CHARS)}\n`);
        },
      });
      progress.done();
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      process.stdout.write(`${group.name}: ${rows} rows compared in ${seconds} s, ${differences} differ\n`);
    }
    return found === 0 ? 0 : 1;
  });
}

function readReplay(args: readonly string[]): { readonly name: string | undefined; readonly untilMs: number | null } {
  const { values, words } = readArguments(args, { until: { type: 'string' } });
  const [name] = words;
  if (values.until === undefined) return { name, untilMs: null };
  const untilMs = Date.parse(values.until);
  if (Number.isNaN(untilMs)) throw new StartError('--until needs a time such as 2026-01-31T12:00:00Z');
  return { name, untilMs };
}
