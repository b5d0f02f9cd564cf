import { SCHEMAS } from '#src/projections/schemas.ts';
import type { Stage } from './stage.ts';

const CATCH_UP_MS = 60_000;

/** How far the read model of the sessions has come, as its projector announces it. */
export function followProjections({ connection, manager }: Pick<Stage, 'connection' | 'manager'>): {
  readonly lastLagMs: number;
  /** Resolves when the read model has everything that the log had when this was called. */
  readonly caughtUp: (withinMs?: number) => Promise<void>;
  readonly stop: () => void;
} {
  let position = 0;
  let lastLagMs = 0;
  let moved = (): void => undefined;
  const subscription = connection.subscribe(`signal.progress.${SCHEMAS.sessions}.0`, {
    callback: (_, message) => {
      position = Number(message.string());
      moved();
    },
  });
  return {
    get lastLagMs() {
      return lastLagMs;
    },
    caughtUp: async (withinMs = CATCH_UP_MS) => {
      const began = performance.now();
      const newest = await manager.streams.getMessage('EVT_0', { last_by_subj: 'evt.*.*.session.*' });
      while (position < (newest?.seq ?? 0)) {
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
