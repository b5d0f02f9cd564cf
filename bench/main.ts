import { commitLine, machineLine, table, writeResults } from './report.ts';
import type { Result } from './report.ts';
import type { Row } from './row.ts';
import { abuse } from './rows/abuse.ts';
import { acceptanceLatency } from './rows/acceptance-latency.ts';
import { acceptedCommands } from './rows/accepted-commands.ts';
import { artifactBytes } from './rows/artifact-bytes.ts';
import { budgetedTurns } from './rows/budgets.ts';
import { cancelLatency } from './rows/cancel.ts';
import { coldStart } from './rows/cold-start.ts';
import { consolePages } from './rows/console.ts';
import { crash } from './rows/crash.ts';
import { deletion } from './rows/deletion.ts';
import { disconnect } from './rows/disconnect.ts';
import { executorTurns } from './rows/executor-turns.ts';
import { idleStreams } from './rows/idle-streams.ts';
import { liveTails } from './rows/live-tails.ts';
import { longHistory } from './rows/long-history.ts';
import { mcp } from './rows/mcp.ts';
import { million } from './rows/million.ts';
import { noopTurn } from './rows/noop-turn.ts';
import { previews } from './rows/previews.ts';
import { processes } from './rows/processes.ts';
import { rebuild } from './rows/rebuild.ts';
import { refusals } from './rows/refusals.ts';
import { sandboxes } from './rows/sandboxes.ts';
import { threeStepTurns } from './rows/three-step-turns.ts';
import { uploads } from './rows/uploads.ts';
import { natsBinary, Stage } from './stage.ts';

/** The rows of design 8 that this version can measure, and what else is worth a look. */
const ROWS: Readonly<Record<string, Row>> = {
  row1: acceptedCommands,
  row2: acceptanceLatency,
  row3: noopTurn,
  row4: threeStepTurns,
  processes,
  executor: executorTurns,
  budgets: budgetedTurns,
  row5: liveTails,
  row6: idleStreams,
  row7: longHistory,
  row8: crash,
  row9: rebuild,
  row10: coldStart,
  previews,
  refusals,
  artifacts: artifactBytes,
  uploads,
  cancel: cancelLatency,
  disconnect,
  sandboxes,
  mcp,
  abuse,
};

/** Too long for a default run. */
const ON_DEMAND: Readonly<Record<string, Row>> = { million, deletion, console: consolePages };
const EVERY: Readonly<Record<string, Row>> = { ...ROWS, ...ON_DEMAND };
const RECORDS = 1_000_000;

const USAGE = `npm run bench -- [${Object.keys(EVERY).join('|')} ...] [--quick] [--write] [--cpu-prof=<directory>] [--kept=<directory>] [--records=<n>]
  Each row starts servers of its own and measures the Host and its baseline in turns; no row named: all of them,
  but for ${Object.keys(ON_DEMAND).join(', ')}, which take long.
  --quick      short windows, for a look; the figures are rougher
  --write      puts the figures into docs/benchmarks.json and .svg and docs/benchmark-results.md; rows that are not measured stay as they are there
  --cpu-prof   each Host writes a processor profile there when it ends; its figures are then lower
  --kept       where million keeps its filled log, so that a second run does not fill it again
  --records    of the long session that console opens; ${RECORDS} without it
`;
const QUICK = 0.25;
/** A row that takes longer hangs. */
const ROW_MS = 600_000;
const ON_DEMAND_MS = 3 * 3_600_000;
const KEPT = '/tmp/agent-host-bench-million';

interface Choice {
  readonly rows: readonly string[];
  readonly scale: number;
  readonly write: boolean;
  readonly profiles: string | undefined;
  readonly keptIn: string;
  readonly records: number;
}

function choose(args: readonly string[]): Choice | null {
  const named = args.filter((arg) => !arg.startsWith('--'));
  const flags = args.filter((arg) => arg.startsWith('--'));
  const valueOf = (name: string): string | undefined =>
    flags.find((flag) => flag.startsWith(`${name}=`))?.slice(name.length + 1);
  const [profiles, keptIn = KEPT] = [valueOf('--cpu-prof'), valueOf('--kept')];
  const known = flags.every((flag) => /^--(?:quick|write|cpu-prof=.+|kept=.+|records=[1-9]\d*)$/.test(flag));
  if (!known || named.some((name) => !Object.hasOwn(EVERY, name))) return null;
  const rows = named.length === 0 ? Object.keys(ROWS) : Object.keys(EVERY).filter((name) => named.includes(name));
  const records = Number(valueOf('--records') ?? RECORDS);
  const [scale, write] = [flags.includes('--quick') ? QUICK : 1, flags.includes('--write')];
  return { rows, scale, write, profiles, keptIn, records };
}

async function main(args: readonly string[]): Promise<number> {
  const choice = choose(args);
  if (choice === null) {
    process.stdout.write(USAGE);
    return 2;
  }
  const report = (line: string): void => void process.stderr.write(`  ${line}\n`);
  const interruption = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interruption.abort());
  const interrupted = new Promise<never>((_, reject) => {
    interruption.signal.addEventListener('abort', () => reject(new Error('interrupted')));
  });
  interrupted.catch(() => undefined);
  const binary = await natsBinary(report);
  const results: Result[] = [];
  const commit = commitLine();
  let machine = '';
  let failed = false;
  for (const name of choice.rows) {
    process.stderr.write(`${name}\n`);
    const stage = await Stage.open(binary, { report, profiles: choice.profiles });
    const row = EVERY[name];
    try {
      if (machine === '') machine = await machineLine(stage.databaseUrl, binary.version);
      if (row === undefined) continue;
      const openKept = async (): Promise<Stage> =>
        await Stage.open(binary, { report, profiles: choice.profiles, keptIn: choice.keptIn });
      const { scale, records } = choice;
      const context = { stage, scale, records, report, openKept };
      const measures = [...(await Promise.race([row(context), interrupted, late(name)]))];
      results.push({ row: name, date: new Date().toISOString(), commit, machine, measures });
    } catch (error) {
      // What the other rows have measured is worth having all the same.
      failed = true;
      report(`${name} failed: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    } finally {
      await stage.close();
    }
    if (interruption.signal.aborted) break;
  }
  const measures = results.flatMap((result) => result.measures);
  process.stdout.write(`\n${machine} · commit ${commit}\n\n${table(measures)}\n`);
  if (choice.write) writeResults(results, Object.keys(EVERY));
  return !failed && measures.every(({ met }) => met) ? 0 : 1;
}

async function late(name: string): Promise<never> {
  const withinMs = Object.hasOwn(ON_DEMAND, name) ? ON_DEMAND_MS : ROW_MS;
  return await new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`${name} did not end within ${withinMs / 1000} s`)), withinMs).unref();
  });
}

try {
  process.exit(await main(process.argv.slice(2)));
} catch (error) {
  process.stderr.write(`bench: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exit(1);
}
