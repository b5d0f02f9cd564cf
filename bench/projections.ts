import { SCHEMAS } from '#src/projections/schemas.ts';
import { LOG_SHARDS } from './stage.ts';
import type { Stage } from './stage.ts';

const CATCH_UP_MS = 60_000;

/** How far the read model of the sessions has come, as its projectors announce it. */
export function followProjections(stage: Pick<Stage, 'connection' | 'newest'>): {
  readonly lastLagMs: number;
  /** Resolves when the read model has everything that the log had when this was called. */
  readonly caughtUp: (withinMs?: number) => Promise<void>;
  readonly stop: () => void;
} {
  const positions = Array.from({ length: LOG_SHARDS }, () => 0);
  let lastLagMs = 0;
  let moved = (): void => undefined;
  const subscription = stage.connection.subscribe(`signal.progress.${SCHEMAS.sessions}.*`, {
    callback: (_, message) => {
      positions[Number(message.subject.split('.').at(-1))] = Number(message.string());
      moved();
    },
  });
  const hasCome = (newest: readonly number[]): boolean => newest.every((seq, shard) => (positions[shard] ?? 0) >= seq);
  return {
    get lastLagMs() {
      return lastLagMs;
    },
    caughtUp: async (withinMs = CATCH_UP_MS) => {
      const began = performance.now();
      const newest = await Promise.all(
        positions.map(async (_, shard) => (await stage.newest(shard, 'evt.*.*.session.*'))?.seq ?? 0),
      );
      while (!hasCome(newest)) {
        if (performance.now() - began > withinMs) throw new Error('the projections do not catch up');
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, 100);
          moved = () => {
            clearTimeout(timer);
            resolve();
          };
        });
      }
      lastLagMs = performance.now() - began;
    },
    stop: () => subscription.unsubscribe(),
  };
}
