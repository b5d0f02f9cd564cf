/** What a node tells Prometheus, read as Prometheus reads it. */
export class Scrape {
  /** Names of the metrics, as their TYPE lines give them. */
  readonly names: ReadonlySet<string>;
  readonly #samples: readonly { readonly name: string; readonly labels: string; readonly value: number }[];

  constructor(text: string) {
    const lines = text.split('\n');
    this.names = new Set(lines.flatMap((line) => /^# TYPE (\S+) /.exec(line)?.[1] ?? []));
    this.#samples = lines.flatMap((line) => {
      if (line === '' || line.startsWith('#')) return [];
      const [, name = '', labels = '', value] = /^([a-z_:][a-z0-9_:]*)(?:\{(.*)\})? (\S+)$/i.exec(line) ?? [];
      const isNumber = value !== undefined && (/^nan$/i.test(value) || !Number.isNaN(Number(value)));
      if (!isNumber) throw new Error(`not a sample: ${line}`);
      return [{ name, labels, value: Number(value) }];
    });
  }

  static async of({ metricsUrl }: { readonly metricsUrl: string }): Promise<Scrape> {
    return new Scrape(await (await fetch(metricsUrl)).text());
  }

  /** Every label that is used but for the bounds of buckets, as `name=value`. */
  get labels(): ReadonlySet<string> {
    return new Set(this.#samples.flatMap(({ labels }) => pairs(labels)).filter((pair) => !pair.startsWith('le=')));
  }

  /** Whether there is any sample with these labels. */
  has(name: string, labels: Readonly<Record<string, string>> = {}): boolean {
    return this.#matching(name, labels).length > 0;
  }

  /** The sum of the samples that have these labels, and perhaps others; 0 when there is none. */
  value(name: string, labels: Readonly<Record<string, string>> = {}): number {
    return this.#matching(name, labels).reduce((sum, { value }) => sum + value, 0);
  }

  #matching(name: string, labels: Readonly<Record<string, string>>) {
    const wanted = Object.entries(labels).map(([label, value]) => `${label}=${value}`);
    return this.#samples.filter((sample) => {
      const own = sample.name === `agent_host_${name}` ? pairs(sample.labels) : null;
      return own !== null && wanted.every((pair) => own.includes(pair));
    });
  }
}

function pairs(labels: string): string[] {
  return [...labels.matchAll(/([a-z_]+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, value]) => `${label}=${value}`);
}
