/** What has been started, to be stopped in reverse order; a failing part does not keep the others running. */
export class Stack {
  readonly #entries: { readonly name: string; readonly stop: () => Promise<void> | void }[] = [];

  defer(name: string, stop: () => Promise<void> | void): void {
    this.#entries.push({ name, stop });
  }

  async unwind(onError?: (name: string, error: unknown) => void): Promise<void> {
    for (let entry = this.#entries.pop(); entry !== undefined; entry = this.#entries.pop()) {
      try {
        await entry.stop();
      } catch (error) {
        onError?.(entry.name, error);
      }
    }
  }
}
