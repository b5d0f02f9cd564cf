import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import { fileURLToPath } from 'node:url';
import { Client } from 'pg';
import { z } from 'zod';
import { chart } from './chart.ts';
import { measureSchema } from './row.ts';
import type { Measure } from './row.ts';

const DOCS = fileURLToPath(new URL('../docs/', import.meta.url));
const RESULTS = `${DOCS}benchmarks.json`;
const PAGE = `${DOCS}benchmark-results.md`;
const CHART = `${DOCS}benchmarks.svg`;
const BEGIN = '<!-- written by `npm run bench -- --write`: begin -->';
const END = '<!-- written by `npm run bench -- --write`: end -->';
const GIB = 1_073_741_824;

const resultSchema = z.object({
  row: z.string(),
  date: z.string(),
  commit: z.string(),
  machine: z.string(),
  measures: z.array(measureSchema),
});

/** What a row has measured, and where and when. */
export type Result = z.infer<typeof resultSchema>;

/** The machine, and what runs on it. */
export async function machineLine(databaseUrl: string, nats: string): Promise<string> {
  const client = new Client({ connectionString: databaseUrl });
  await client.connect();
  const { rows } = await client.query<{ server_version: string }>('show server_version');
  await client.end();
  const cores = cpus();
  const memory = `${(totalmem() / GIB).toFixed(0)} GiB`;
  return `${cores.length} × ${cores[0]?.model.trim() ?? 'unknown processor'}, ${memory} · node ${process.versions.node} · nats-server ${nats} · Postgres ${rows[0]?.server_version ?? '?'}`;
}

/** The commit that is measured; a tree that differs from it says so. */
export function commitLine(): string {
  const git = (...args: readonly string[]): string =>
    execFileSync('git', ['-C', DOCS, ...args], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim();
  try {
    return `${git('rev-parse', '--short=10', 'HEAD')}${git('status', '--porcelain', '--', ':/src', ':/bench') === '' ? '' : ' with changes'}`;
  } catch {
    return 'unknown';
  }
}

export function table(measures: readonly Measure[]): string {
  const head = ['measure', 'Host', 'bare handler', 'ratio', 'target', 'met'];
  const lines = measures.map((m) => [m.measure, m.subject, m.baseline, m.ratio, m.target, m.met ? 'yes' : 'NO']);
  return [head, head.map(() => '---'), ...lines].map((cells) => `| ${cells.join(' | ')} |`).join('\n');
}

/**
 * Puts results into docs/: as JSON, as a table in the page, and as a chart. Rows that were not measured this time stay as
 * they were, in the order of `rows`.
 */
export function writeResults(results: readonly Result[], rows: readonly string[]): void {
  const byRow = new Map([...earlierResults(), ...results].map((result) => [result.row, result]));
  const all = rows.flatMap((row) => byRow.get(row) ?? []);
  writeFileSync(RESULTS, `${JSON.stringify(all, null, 2)}\n`);
  const newest = all.toSorted((a, b) => (a.date < b.date ? 1 : -1))[0];
  if (newest === undefined) return;
  const goals = all.flatMap(({ measures }) => measures.flatMap((measure) => measure.goals));
  writeFileSync(CHART, chart(goals, `${newest.machine} · ${newest.date.slice(0, 10)} · ${newest.commit}`));
  const page = readFileSync(PAGE, 'utf8');
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin < 0 || end < begin) throw new Error(`${PAGE} has lost the lines between which the results stand`);
  writeFileSync(PAGE, `${page.slice(0, begin + BEGIN.length)}\n\n${section(all)}\n\n${page.slice(end)}`);
}

function earlierResults(): readonly Result[] {
  try {
    return z.array(resultSchema).parse(JSON.parse(readFileSync(RESULTS, 'utf8')));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
    throw error;
  }
}

/** A table for each run: rows of one day, commit and machine stand together. */
function section(all: readonly Result[]): string {
  const runs = Map.groupBy(all, ({ date, commit, machine }) => `${date.slice(0, 10)}, commit ${commit}, ${machine}`);
  return [...runs].map(([run, of]) => `${run}:\n\n${table(of.flatMap(({ measures }) => measures))}`).join('\n\n');
}
