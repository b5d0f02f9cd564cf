import { join } from 'node:path';
import { readIfPresent } from '#src/lib/files.ts';
import { streamName } from '#src/streams/subjects.ts';
import { cpuMs, ms } from './figures.ts';
import type { Sample } from './figures.ts';
import { expectStatus } from './loops.ts';
import { LOG_SHARDS, textOf } from './stage.ts';
import type { Node, Stage } from './stage.ts';
import { bare, rotation } from './tenant.ts';
import type { Tenant } from './tenant.ts';
import type { EventReader, Line } from './wire.ts';

const KIB = 1_024;

/** Sessions that one place of a load takes in turn. */
export const SESSIONS_EACH = 4;

const call = [{ name: 'x', input: {} }];
/** Of a message: three model calls, the first two with a call of a tool that there is not. */
export const THREE_STEPS = JSON.stringify({
  fixture: [{ text: '1', toolCalls: call }, { text: '2', toolCalls: call }, { text: '3' }],
});

/** What was done in a time, and what it cost. */
export interface Window {
  readonly turns: number;
  readonly elapsedMs: number;
  readonly used: Use;
}

/** Processor time by part, ms, and what the heap of the node has allocated, bytes; 0: it does not say. */
export interface Use {
  readonly node: number;
  readonly nats: number;
  readonly postgres: number;
  readonly allocated: number;
}

const USES = ['node', 'nats', 'postgres', 'allocated'] as const;

function useOf(read: (use: (typeof USES)[number]) => number): Use {
  const [node = 0, nats = 0, postgres = 0, allocated = 0] = USES.map(read);
  return { node, nats, postgres, allocated };
}

export function total(windows: readonly Window[]): Window {
  const sum = (of: (window: Window) => number): number => windows.reduce((all, window) => all + of(window), 0);
  const used = useOf((use) => sum((window) => window.used[use]));
  return { turns: sum((window) => window.turns), elapsedMs: sum((window) => window.elapsedMs), used };
}

export function cpuEach({ turns, used: { node, nats, postgres } }: Window): number {
  return (node + nats + postgres) / turns;
}

export function describe(window: Window): string {
  const { turns, elapsedMs, used } = window;
  const each = (value: number): string => (value / turns).toFixed(2);
  const split = `node ${each(used.node)}, nats ${each(used.nats)}, postgres ${each(used.postgres)}`;
  const heap = used.allocated === 0 ? '' : `, ${(used.allocated / turns / KIB).toFixed(0)} KiB of heap`;
  return `${((turns * 1000) / elapsedMs).toFixed(0)}/s, CPU ${ms(cpuEach(window))} a turn (${split})${heap}`;
}

/** Reads what each part has used so far. */
export function usesOf({ serverPids: { nats, postgres } }: Stage, node: Node): () => Promise<Use> {
  return async () => {
    const allocated = await allocatedBy(node);
    return { node: cpuMs(node.pid), nats: cpuMs(nats), postgres: cpuMs(postgres), allocated };
  };
}

/** What all processes of a Host have allocated. */
async function allocatedBy(node: Node): Promise<number> {
  return [...(await readings(node, 'heap_allocated_bytes_total')).values()].reduce((sum, bytes) => sum + bytes, 0);
}

/** Processor time so far of each process of a Host, by its number or `supervisor`, ms; the last number is the projector's. */
export async function processTimes(node: Node): Promise<ReadonlyMap<string, number>> {
  const seconds = await readings(node, 'process_cpu_seconds_total');
  return new Map([...seconds].map(([name, value]) => [name, value * 1_000]));
}

/** Of a metric of the process, by process; the bare handler has no metrics. */
async function readings({ directory }: Node, metric: string): Promise<ReadonlyMap<string, number>> {
  const address = await readIfPresent(join(directory, 'metrics-listen'));
  if (address === undefined) return new Map();
  const text = await (await fetch(`http://${address.trim()}/metrics`)).text();
  const found = text.matchAll(new RegExp(`^agent_host_${metric}(?:\\{process="([^"]*)"\\})? (\\S+)$`, 'gm'));
  return new Map([...found].map(([, name = 'all', value]) => [name, Number(value)]));
}

export async function windowOf(
  { forMs, uses }: { forMs: number; uses: () => Promise<Use> },
  run: (until: number) => Promise<number>,
): Promise<Window> {
  const [before, began] = [await uses(), performance.now()];
  const turns = await run(began + forMs);
  const elapsedMs = performance.now() - began;
  const after = await uses();
  return { turns, elapsedMs, used: useOf((use) => after[use] - before[use]) };
}

/** Runs turns on sessions that are followed from the start; a turn is over when its last event arrives. */
export class Slots {
  readonly #tenant: Tenant;
  readonly #ids: readonly string[];
  readonly #waiting = new Map<string, () => void>();
  #readers: readonly EventReader[] = [];

  private constructor(tenant: Tenant, ids: readonly string[]) {
    this.#tenant = tenant;
    this.#ids = ids;
  }

  static async open(parts: { tenant: Tenant; host: Node; ids: readonly string[] }): Promise<Slots> {
    const slots = new Slots(parts.tenant, parts.ids);
    slots.#readers = await Promise.all(
      parts.ids.map(
        async (id) =>
          await parts.tenant.follow(parts.host, id, (frame) => {
            if (frame.includes('event: turn.completed')) slots.#waiting.get(id)?.();
            else if (/event: turn\.(?:failed|cancelled|uncertain|paused)/.test(frame))
              throw new Error(`a turn did not complete: ${frame}`);
          }),
      ),
    );
    return slots;
  }

  async turn(line: Line | undefined, id: string, script: string): Promise<void> {
    if (line === undefined) throw new Error('no connection');
    const ended = new Promise<void>((resolve) => this.#waiting.set(id, resolve));
    const [answer] = await Promise.all([line.send(this.#tenant.message(id, script)), ended]);
    expectStatus(answer, 202);
  }

  async run(
    lines: readonly Line[],
    { script, until, latency }: { script: string; until: number; latency: Sample },
  ): Promise<number> {
    let turns = 0;
    await Promise.all(
      lines.map(async (line, slot) => {
        const next = rotation(this.#ids.slice(slot * SESSIONS_EACH, (slot + 1) * SESSIONS_EACH));
        for (let began = performance.now(); began < until; began = performance.now()) {
          await this.turn(line, next(), script);
          latency.add(performance.now() - began);
          turns++;
        }
      }),
    );
    return turns;
  }

  close(): void {
    for (const reader of this.#readers) reader.close();
  }
}

/** The same commits through the bare handler, until a time; resolves to how many turns they were. */
export async function bareTurns(
  lines: readonly Line[],
  { ids, commits, until }: { ids: readonly string[]; commits: readonly string[]; until: number },
): Promise<number> {
  const next = rotation(ids);
  const done = lines.map(async (line) => {
    let turns = 0;
    for (; performance.now() < until; turns++) expectStatus(await line.send(bare.turn(next(), commits)), 202);
    return turns;
  });
  return (await Promise.all(done)).reduce((sum, turns) => sum + turns, 0);
}

/** Texts as long as the commits of the session's only turn are in the log, for the bare handler to store. */
export async function commitsOfTurn({ manager }: Stage, id: string): Promise<readonly string[]> {
  const commits: string[] = [];
  for (let shard = 0; shard < LOG_SHARDS; shard++) {
    for (let seq = 1; ;) {
      const next = { seq, next_by_subj: `evt.*.*.session.${id}` };
      // The client's type leaves this form out; the server answers it.
      const message = await manager.streams.getMessage(streamName(shard), next as never).catch(() => null);
      if (message === null) break;
      commits.push(textOf(message.data));
      seq = message.seq + 1;
    }
  }
  // The first one opened the session.
  return commits.slice(1);
}
