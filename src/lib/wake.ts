/** A level that many may raise and one waits for: nothing raised before the wait begins is missed. */
export class Wake {
  #raised = false;
  #resolve: (() => void) | null = null;

  raise(): void {
    this.#raised = true;
    this.#resolve?.();
  }

  /** Resolves when it is raised, or after `ms` (null: never), and lowers it. */
  async wait(ms: number | null): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    if (!this.#raised) {
      await new Promise<void>((resolve) => {
        this.#resolve = resolve;
        if (ms !== null) timer = setTimeout(resolve, Math.min(ms, TIMER_MAX_MS));
      });
    }
    clearTimeout(timer);
    this.#resolve = null;
    this.#raised = false;
  }
}

const TIMER_MAX_MS = 2_147_483_647;
