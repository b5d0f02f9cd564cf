const TIMER_MAX_MS = 2_147_483_647;

/** Resolves in a later turn of the event loop: what waits for memory in a loop leaves room for timers and input. */
export async function turn(): Promise<void> {
  await new Promise<void>((resolve) => setImmediate(resolve));
}

/** Calls back after a time, however long it is, ms. Returns the function that prevents it. */
export function after(ms: number, callback: () => void): () => void {
  const step = Math.min(Math.max(0, ms), TIMER_MAX_MS);
  let timer = setTimeout(
    function wait(leftMs: number) {
      if (leftMs <= 0) callback();
      else timer = setTimeout(wait, Math.min(leftMs, TIMER_MAX_MS), leftMs - TIMER_MAX_MS);
    },
    step,
    ms - step,
  );
  return () => clearTimeout(timer);
}
