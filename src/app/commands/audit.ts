import { agentType, artifactType, budgetType, quotaType, sessionType, tenantType } from '../../commands/aggregate.ts';
import { audit } from '../../projections/audit.ts';
import { ChainVerifier } from '../../streams/chain-verifier.ts';
import type { ChainProblem } from '../../streams/chain-verifier.ts';
import { AGGREGATE_KINDS } from '../../streams/subjects.ts';
import type { Config } from '../config.ts';
import { StartError } from '../start-error.ts';
import { groupsNamed } from './rebuild.ts';
import { besideRunningHost, progressPrinter } from './running-host.ts';

/** Rows and chains that are printed one by one; the rest is counted. */
const SHOWN_MAX = 100;
const ROW_CHARS = 300;

/** Read ahead by one reader, commits. */
const BUFFER = 500;

const SCHEMAS = Object.fromEntries(
  [agentType, artifactType, budgetType, quotaType, sessionType, tenantType].map(({ kind, schemas }) => [kind, schemas]),
);

/**
 * `agent-host audit replay [name] [--until <time>]`: rebuilds read models in a scratch schema and reports every row that
 * differs from the live one. Exit code 1 when any does.
 */
export async function auditReplay(config: Config, args: readonly string[]): Promise<number> {
  const { name, untilMs } = readArguments(args);
  const groups = groupsNamed(name);
  return await besideRunningHost(config, 'audit', async ({ log, pool, logger }) => {
    let found = 0;
    for (const group of groups) {
      const begun = performance.now();
      const { rows, differences } = await audit({
        ...{ pool, source: log.source, group, logger, untilMs },
        onProgress: progressPrinter(),
        onDifference: ({ table, side, row }) => {
          found++;
          if (found <= SHOWN_MAX) process.stdout.write(`${table}: ${side}: ${row.slice(0, ROW_CHARS)}\n`);
        },
      });
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      process.stdout.write(`${group.name}: ${rows} rows compared in ${seconds} s, ${differences} differ\n`);
    }
    return found === 0 ? 0 : 1;
  });
}

function readArguments(args: readonly string[]): {
  readonly name: string | undefined;
  readonly untilMs: number | null;
} {
  const at = args.indexOf('--until');
  const names = args.filter((_, index) => at < 0 || (index !== at && index !== at + 1));
  if (at < 0) return { name: names[0], untilMs: null };
  const untilMs = Date.parse(args[at + 1] ?? '');
  if (Number.isNaN(untilMs)) throw new StartError('--until needs a time such as 2026-01-31T12:00:00Z');
  return { name: names[0], untilMs };
}

/**
 * `agent-host audit verify`: reads the whole log and checks that each aggregate is a chain of commits without a gap, that
 * every commit opens under its tenant's key in the place where it lies, and that its events have their shape. Exit code 1
 * when anything is wrong.
 */
export async function auditVerify(config: Config): Promise<number> {
  return await besideRunningHost(config, 'audit', async ({ log }) => {
    const begun = performance.now();
    const problems: ChainProblem[] = [];
    const verifier = new ChainVerifier(SCHEMAS);
    const show = progressPrinter();
    for (let shard = 0; shard < log.source.shards; shard++) {
      const newest = await log.source.newest(shard, 'all');
      if (newest === 0) continue;
      const done = new AbortController();
      const following = { shard, kinds: AGGREGATE_KINDS, after: 0, signal: done.signal, buffer: BUFFER };
      for await (const batch of log.source.follow(following)) {
        for (const followed of batch) problems.push(...verifier.take(followed));
        show({ group: 'log', shard, position: verifier.position, newest });
        if (verifier.position >= newest) break;
      }
      done.abort();
    }
    for (const { subject, position, what } of problems.slice(0, SHOWN_MAX)) {
      process.stdout.write(`${subject} at ${position}: ${what}\n`);
    }
    const seconds = (performance.now() - begun) / 1000;
    const { commits, aggregates, erased } = verifier;
    const rate = Math.round(commits / Math.max(0.001, seconds));
    process.stdout.write(
      `${commits} commits of ${aggregates} aggregates verified (${rate} a second), ${erased} erased, ${problems.length} problems\n`,
    );
    return problems.length === 0 ? 0 : 1;
  });
}
