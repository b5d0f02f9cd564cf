import { setTimeout as sleep } from 'node:timers/promises';
import { capacityOf } from './capacity/model.ts';
import type { Capacity, Pair, Use } from './capacity/model.ts';
import { scrape } from './capacity/scrape.ts';
import type { Config } from '../app/config.ts';
import { readPublished } from '../embedded/data-dir.ts';
import { StartError } from '../lib/start-error.ts';
import { readArguments } from './arguments.ts';

const GIB = 2 ** 30;
const SECONDS = { default: 10, max: 3_600 };
const SHOWN_USES = 8;

const OPTIONS = {
  json: { type: 'boolean' },
  seconds: { type: 'string' },
  'appends-per-shard': { type: 'string' },
  'nats-memory-gib': { type: 'string' },
  'node-memory-gib': { type: 'string' },
} as const;

/**
 * `agent-host capacity [url …]`: reads the metrics of the named nodes, or of the Host of the data directory, twice, and
 * prints what the installation uses, what a turn costs, and what gives way first. Returns the exit code.
 */
export async function capacity(config: Config, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, OPTIONS);
  const seconds = numberOf(values.seconds, '--seconds', SECONDS.default);
  if (seconds > SECONDS.max) throw new StartError(`--seconds is ${SECONDS.max} at most`);
  const limits = {
    appendsPerShard: numberOf(values['appends-per-shard'], '--appends-per-shard', 2_000),
    natsMemoryBytes: numberOf(values['nats-memory-gib'], '--nats-memory-gib', 4) * GIB,
    nodeMemoryBytes: numberOf(values['node-memory-gib'], '--node-memory-gib', 1) * GIB,
    turns: config.turns,
  };
  const urls = words.length > 0 ? words : [await ownUrl(config)];
  const before = await Promise.all(urls.map(scrape));
  await sleep(seconds * 1000);
  const pairs = await Promise.all(before.map(async (first): Promise<Pair> => [first, await scrape(first.url)]));
  const found = capacityOf(pairs, limits);
  process.stdout.write(values.json === true ? `${JSON.stringify(found, null, 2)}\n` : textOf(found));
  return 0;
}

async function ownUrl({ dataDir }: Config): Promise<string> {
  const address = await readPublished(dataDir, 'metrics-listen');
  if (address === undefined)
    throw new StartError(`no Host runs on ${dataDir}; start it, or name the /metrics of nodes`);
  return `http://${address}/metrics`;
}

function numberOf(text: unknown, option: string, otherwise: number): number {
  if (text === undefined) return otherwise;
  const value = Number(text);
  if (Number.isFinite(value) && value > 0) return value;
  throw new StartError(`${option} must be a number above 0`);
}

function textOf({ seconds, turnsPerSecond, nodes, stored, perTurn, uses }: Capacity): string {
  const lines = [`Over ${shown(seconds)} s: ${shown(turnsPerSecond)} turns/s`, ''];
  const columns = ['node', 'cores', 'memory', 'requests/s', 'appends/s', 'statements/s', 'streams', 'turns'];
  const rows = nodes.map((node) => [
    node.url,
    shown(node.cores),
    bytes(node.memoryBytes),
    shown(node.requestsPerSecond),
    shown(node.appendsPerSecond),
    shown(node.statementsPerSecond),
    shown(node.openStreams),
    shown(node.turnsActive),
  ]);
  lines.push(...table([columns, ...rows]), '');
  if (stored === null) {
    lines.push('No node with the role projector is among them: what is stored, and open turns, are not shown.', '');
  } else {
    const open = Object.entries(stored.openTurns).map(([state, count]) => `${count} ${state}`);
    lines.push(
      `Log: ${shown(stored.commits)} commits of ${shown(stored.aggregates)} aggregates in ${stored.shards === 1 ? 'one shard' : `${stored.shards} shards`}, ${bytes(stored.logBytes)} a copy`,
      `Read models: ${shown(stored.rows)} rows, ${bytes(stored.readStoreBytes)}`,
      `Open turns: ${open.join(', ')}`,
      '',
    );
  }
  if (perTurn !== null) {
    const { logBytes, rows: made, readStoreBytes } = perTurn;
    const kept =
      logBytes === null || made === null || readStoreBytes === null
        ? ''
        : `, ${bytes(logBytes)} of log, ${shown(made)} rows, ${bytes(readStoreBytes)} of read models`;
    lines.push(
      `A turn takes ${shown(perTurn.cpuMs)} ms of the nodes' processors, ${shown(perTurn.appends)} appends, ${shown(perTurn.statements)} statements${kept}`,
      '',
    );
  }
  lines.push('What gives way first:', ...table(uses.slice(0, SHOWN_USES).map(row)), '');
  return `${lines.join('\n')}\n`;
}

function row({ what, use, limit, unit, share }: Use): string[] {
  const amount = unit === 'bytes' ? `${bytes(use)} of ${bytes(limit)}` : `${shown(use)} of ${shown(limit)} ${unit}`;
  return [`${(share * 100).toFixed(1)} %`, what, amount];
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((cells) => cells[column]?.length ?? 0)));
  return rows.map((cells) => `  ${cells.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}`.trimEnd());
}

function shown(value: number): string {
  return value.toLocaleString('en-US', { maximumFractionDigits: value < 10 ? 2 : 0 });
}

function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, Math.abs(value))) / 10)));
  return `${shown(value / 1024 ** power)} ${units[power] ?? ''}`;
}
