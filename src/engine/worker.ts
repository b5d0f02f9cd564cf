import type { TurnPlace, TurnRunner } from '../commands/session/turn-runner.ts';
import type { SessionState } from '../domain/session/state.ts';
import * as process from '../domain/turn/process.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { LogUnavailableError } from '../streams/event-store.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { WorkItem, WorkQueue } from '../streams/work-queue.ts';
import type { WorkerLiveness } from './liveness.ts';
import { ModelCaller } from './model-call.ts';
import type { ModelCallParts } from './model-call.ts';
import { turnStep } from './turn-step.ts';

export interface WorkerOptions extends ModelCallParts {
  readonly work: WorkQueue;
  readonly liveness: WorkerLiveness;
  /** Turns that run at the same time in this process. */
  readonly concurrency: number;
  /** Past it a stopping worker gives up the calls that are still under way, ms. */
  readonly drainMs?: number;
}

/** Design, section 5: within 10 s. */
const DRAIN_MS = 8_000;

/**
 * Runs turns: those whose commands this process accepted, and those that it takes from the work queue.
 *
 *   idle → running (claims, drives) → draining (`stop`: each turn is handed back at its next recorded step) → stopped
 *
 * A turn is driven from the fold of its session alone. Whatever is lost here, another worker finds it in the log.
 */
export class Worker implements TurnRunner {
  readonly #options: WorkerOptions;
  readonly #calls: ModelCaller;
  readonly #stopping = new AbortController();
  /** Aborted when a drain has taken too long. */
  readonly #givingUp = new AbortController();
  readonly #running = new Map<string, Promise<void>>();
  #reserved = 0;
  #roomWanted: (() => void) | null = null;
  #taking: Promise<void> = Promise.resolve();

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#calls = new ModelCaller(options, { stopping: this.#stopping.signal, givingUp: this.#givingUp.signal });
  }

  /** Turns that this process holds. */
  get active(): number {
    return this.#running.size;
  }

  start(): void {
    const options = { hasRoom: async () => await this.#room(), signal: this.#stopping.signal };
    this.#taking = this.#options.work.take(
      (item) => this.#run(item.ref, async () => await this.#takeOver(item)),
      options,
    );
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.#roomWanted?.();
    const timer = setTimeout(() => this.#givingUp.abort(), this.#options.drainMs ?? DRAIN_MS);
    await this.#taking;
    await Promise.all(this.#running.values());
    clearTimeout(timer);
  }

  reserve(): TurnPlace | null {
    if (this.#stopping.signal.aborted || !this.#hasRoom()) return null;
    this.#reserved++;
    let held = true;
    const free = (): void => {
      if (held) this.#reserved--;
      held = false;
    };
    const run = (ref: AggregateRef): void => {
      free();
      this.#run(ref, async () => await this.#drive(ref));
    };
    return { workerId: this.#options.workerId, run, free };
  }

  #hasRoom(): boolean {
    return this.#running.size + this.#reserved < this.#options.concurrency;
  }

  async #room(): Promise<void> {
    while (!this.#hasRoom() && !this.#stopping.signal.aborted) {
      await new Promise<void>((resolve) => {
        this.#roomWanted = resolve;
      });
    }
  }

  #run(ref: AggregateRef, task: () => Promise<void>): void {
    const key = refKey(ref);
    const before = this.#running.get(key) ?? Promise.resolve();
    const mine = before
      .then(async () => await this.#untilDone(ref, task))
      .finally(() => {
        if (this.#running.get(key) === mine) this.#running.delete(key);
        this.#roomWanted?.();
      });
    this.#running.set(key, mine);
  }

  /**
   * A turn that this process holds is never just dropped: its lease would keep others away. The log being away is waited
   * out; a bug ends the turn as failed.
   */
  async #untilDone(ref: AggregateRef, task: () => Promise<void>): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      try {
        await (attempt === 0 ? task() : this.#drive(ref));
        return;
      } catch (error) {
        this.#options.logger.error(
          { err: error, session: ref.id, tenant: ref.tenant },
          'a turn could not be driven on',
        );
        if (!(error instanceof LogUnavailableError)) await this.#failTurn(ref).catch(() => undefined);
        if (this.#stopping.signal.aborted) return;
        await delay(backoffMs(attempt, { baseMs: 100, capMs: 5_000 }), this.#stopping.signal);
      }
    }
  }

  async #failTurn(ref: AggregateRef): Promise<void> {
    await turnStep(this.#options, { ref, causation: 'worker failure' }, (draft) => {
      if (this.#owns(draft.state))
        process.fail(draft, { code: 'internal_error', message: 'The turn met an internal error.' });
    });
  }

  async #takeOver(item: WorkItem): Promise<void> {
    const { ref } = item;
    const { state } = await this.#options.sessions.refresh(ref);
    const seen = state.status === 'open' ? state.turn : null;
    const wanted = seen !== null && (seen.claim === null || !this.#options.liveness.isAlive(seen.claim.workerId));
    if (wanted) {
      await turnStep(this.#options, { ref, causation: 'take-over' }, (draft, clock) => {
        const turn = draft.state.status === 'open' ? draft.state.turn : null;
        // Somebody else was faster: the epoch has moved on, or the turn has ended.
        if (turn?.turnId === seen.turnId && turn.epoch === seen.epoch)
          process.claim(draft, this.#options.workerId, clock);
      });
      await faultPoint('turn.claimed');
    }
    await item.done();
    await this.#drive(ref);
  }

  /** Runs the turn's effects, one after the other, for as long as the turn is ours. */
  async #drive(ref: AggregateRef): Promise<void> {
    for (;;) {
      const { state, position } = await this.#options.sessions.load(ref);
      const turn = this.#owns(state);
      if (turn === null || state.status !== 'open') return;
      if (turn.pending !== null) {
        await this.#calls.run({ ref, session: state, position, pending: turn.pending });
      } else {
        await this.#wait(ref, turn.retryAt);
      }
    }
  }

  #owns(state: SessionState): NonNullable<Extract<SessionState, { status: 'open' }>['turn']> | null {
    const turn = state.status === 'open' ? state.turn : null;
    return turn?.claim?.workerId === this.#options.workerId ? turn : null;
  }

  /** Between a retryable failure and the next attempt; a change of the session (a cancel) or a stop ends the wait. */
  async #wait(ref: AggregateRef, retryAt: string | null): Promise<void> {
    const waitMs = retryAt === null ? 0 : Math.max(0, Date.parse(retryAt) - this.#options.clock());
    const changed = new AbortController();
    const unwatch = this.#options.sessions.watch(ref, () => changed.abort());
    try {
      await delay(waitMs, AbortSignal.any([changed.signal, this.#stopping.signal]));
    } finally {
      unwatch();
    }
    const release = this.#stopping.signal.aborted;
    await turnStep(this.#options, { ref, causation: 'retry' }, (draft, clock) => {
      if (this.#owns(draft.state)) process.advance(draft, clock, release);
    });
  }
}
