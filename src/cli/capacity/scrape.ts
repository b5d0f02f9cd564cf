import { StartError } from '../../lib/start-error.ts';

const WITHIN_MS = 10_000;
const PREFIX = 'agent_host_';

/** What a node reported at one moment. */
export interface Scrape {
  readonly url: string;
  /** When it was read, ms on a clock that only runs forward. */
  readonly atMs: number;
  readonly samples: readonly { readonly name: string; readonly labels: string; readonly value: number }[];
}

/** Reads `/metrics` of a node. @throws StartError when it is unreadable, or not a Host's */
export async function scrape(url: string): Promise<Scrape> {
  const text = await textOf(url);
  const atMs = performance.now();
  const samples = text.split('\n').flatMap((line) => {
    const [, name = '', labels = '', value = ''] = /^agent_host_(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? [];
    return name === '' ? [] : [{ name, labels, value: Number(value) }];
  });
  if (samples.length === 0) throw new StartError(`${url} shows no metric ${PREFIX}…; name the /metrics of a Host`);
  return { url, atMs, samples };
}

async function textOf(url: string): Promise<string> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(WITHIN_MS) });
    if (answer.ok) return await answer.text();
    throw new Error(`it answers ${answer.status}`);
  } catch (cause) {
    const reason = cause instanceof Error ? cause.message : String(cause);
    throw new StartError(`${url} cannot be read (${reason}); name the /metrics of nodes that run`, { cause });
  }
}

/** The sum of a metric's samples; null: the node does not show it. */
export function sum({ samples }: Scrape, name: string, label = ''): number | null {
  const found = samples.filter((sample) => sample.name === name && sample.labels.includes(label));
  return found.length === 0 ? null : found.reduce((total, { value }) => total + value, 0);
}

/** The samples of a metric by one of their labels. */
export function byLabel({ samples }: Scrape, name: string, label: string): ReadonlyMap<string, number> {
  const values = samples.filter((sample) => sample.name === name);
  return new Map(
    values.map(({ labels, value }) => [new RegExp(`${label}="([^"]*)"`).exec(labels)?.[1] ?? '', value] as const),
  );
}
