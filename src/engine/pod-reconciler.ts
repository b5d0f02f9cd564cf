import { sandboxRef } from '../commands/sandbox/deps.ts';
import type { SandboxDeps } from '../commands/sandbox/deps.ts';
import { endedHolder } from '../commands/sandbox/open-sandbox.ts';
import { decidePassing } from '../domain/sandbox/decide-pod.ts';
import type { PodVolume } from '../drivers/sandbox/port.ts';
import { BackgroundTask } from '../lib/background-task.ts';
import type { OnRound, Round } from '../lib/background-task.ts';
import type { Logger } from '../lib/logger.ts';

export interface PodReconcilerOptions {
  readonly deps: SandboxDeps;
  readonly logger: Logger;
  /** Between two rounds, ms. */
  readonly pauseMs: number;
  readonly onRound?: OnRound;
}

/**
 * Brings pods to what the log says of them: suspends those that are not used, lets those expire whose
 * time is over, and removes volumes of sandboxes that are deleted, reset or expired, however they were left. It takes no input;
 * several may run at once, as the log lets each step happen only once.
 */
export class PodReconciler {
  readonly #options: PodReconcilerOptions;
  readonly #task: BackgroundTask;

  constructor(options: PodReconcilerOptions) {
    this.#options = options;
    const { logger, onRound, pauseMs } = options;
    this.#task = new BackgroundTask({
      ...{ name: 'pods', what: 'the care for pods', logger, onRound, pauseMs, firstPauseMs: pauseMs },
      work: async (round) => await this.#round(round),
    });
  }

  start(): void {
    this.#task.start();
  }

  async stop(): Promise<void> {
    await this.#task.stop();
  }

  async #round({ signal, failed }: Round): Promise<void> {
    const { pods } = this.#options.deps;
    if (!(await pods.status()).available) return;
    for (const volume of await pods.volumes()) {
      if (signal.aborted) return;
      // One that fails does not hold up the others.
      await this.#visit(volume).catch(failed);
    }
  }

  async #visit(volume: PodVolume): Promise<void> {
    const { deps } = this.#options;
    const { tenant, sandboxId } = volume;
    const ref = sandboxRef(tenant, sandboxId);
    const ended = await endedHolder(deps, tenant, sandboxId);
    const meta = { actor: 'host', causation: sandboxId };
    const nowMs = deps.clock();
    await deps.loop.execute(deps.sandboxes, ref, { ...meta, decide: (state) => decidePassing(state, nowMs, ended) });
    const { state } = await deps.sandboxes.load(ref);
    const machine = state.status === 'open' && state.createdPosition === volume.createdPosition ? state.machine : null;
    // One of a later generation is that of a reset which this node has not heard of.
    const isWanted = machine !== null && machine.desired !== 'deleted' && volume.generation >= machine.volumeGeneration;
    if (!isWanted) {
      await deps.pods.discard(volume);
      return;
    }
    const { desired, hostEpoch, volumeGeneration } = machine;
    if (desired !== 'deleted' && volume.generation === volumeGeneration)
      await deps.pods.settle(volume, { desired, hostEpoch });
  }
}
