/**
 * At most one question under way, its answer shared by everyone who asks until `keptMs` after it came; so is a failure.
 * For questions that anyone may ask as often as they like.
 */
export function coalesced<T>(keptMs: number, ask: () => Promise<T>): () => Promise<T> {
  let answer: Promise<T> | null = null;
  let freshUntil = 0;
  return async () => {
    if (answer === null || performance.now() >= freshUntil) {
      freshUntil = Number.POSITIVE_INFINITY;
      answer = ask().finally(() => {
        freshUntil = performance.now() + keptMs;
      });
    }
    return await answer;
  };
}
