/** Says on standard error how many bytes long work has processed, and at what rate, at most twice a second. */
export class ByteProgress {
  readonly #what: string;
  readonly #begun = performance.now();
  #reportedAt = this.#begun;
  #bytes = 0;

  constructor(what: string) {
    this.#what = what;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
    if (performance.now() - this.#reportedAt < 500) return;
    this.#reportedAt = performance.now();
    process.stderr.write(`${this.#what}: ${this.#text()}\n`);
  }

  /** The last line: `12.3 MiB, 45.6 MiB/s`, and anything else to say. */
  end(more = ''): void {
    process.stderr.write(`${this.#what}: ${this.#text()}${more}\n`);
  }

  #text(): string {
    const mebibytes = this.#bytes / 1_048_576;
    const seconds = Math.max(0.001, (performance.now() - this.#begun) / 1000);
    return `${mebibytes.toFixed(1)} MiB, ${(mebibytes / seconds).toFixed(1)} MiB/s`;
  }
}
