import type { ServersDown } from '../../embedded/servers.ts';
import { backoffMs, delay } from '../../lib/backoff.ts';
import type { Logger } from '../../lib/logger.ts';
import { StartError } from '../../lib/start-error.ts';
import type { Question } from './messages.ts';
import type { KeptProcess, Started } from './forked-process.ts';
import type { PlannedProcess } from './plan.ts';

export interface SupervisorOptions {
  readonly plan: readonly PlannedProcess[];
  readonly fork: (planned: PlannedProcess) => KeptProcess;
  /** How long a process keeps serving when the whole Host stops, ms. */
  readonly drainMs: number;
  /** A process cannot be kept: the Host has to end, for this reason. */
  readonly onFailed: (reason: StartError) => void;
  readonly logger: Logger;
  /** Between a death and the next start, ms; absent: some 100, more the more often it dies. */
  readonly pause?: { readonly baseMs: number; readonly capMs: number };
}

const PAUSE_MS = { baseMs: 100, capMs: 30_000 };
/** A process that has run this long has recovered from what ended its predecessor. */
const HEALTHY_MS = 60_000;
/** So many starts that fail one after the other, over a minute or two: something else has to be mended first. */
const STARTS_MAX = 10;
/**
 * Clients hear at their next request that they should open another connection, ms: as long as a server of Node itself keeps
 * one that is idle. A client of one that is idle for longer may send a request in the moment in which it is closed.
 */
const LEAVING_MS = 5_000;

interface Place {
  readonly planned: PlannedProcess;
  current: KeptProcess | null;
  isReady: boolean;
  /** At some time, so that what it needs was there. */
  wasReady: boolean;
  /** It is restarted by us. */
  isLeaving: boolean;
  restarts: number;
  /** Of the start that is under way, or the next one. */
  ready: PromiseWithResolvers<void>;
  kept: Promise<void>;
}

/** Keeps the processes of a Host: replaces one that dies, and restarts or stops all of them. */
export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #places: readonly Place[];
  readonly #stop = new AbortController();
  readonly #failed = Promise.withResolvers<never>();
  #address: string | null = null;
  #isRestarting = false;

  constructor(options: SupervisorOptions) {
    this.#options = options;
    this.#places = options.plan.map((planned) => ({
      ...{ planned, current: null, isReady: false, wasReady: false, isLeaving: false, restarts: 0 },
      ...{ ready: Promise.withResolvers(), kept: Promise.resolve() },
    }));
    this.#failed.promise.catch(() => undefined);
  }

  /** How often a process was started again after it had ended by itself. */
  get replaced(): number {
    return this.#places.reduce((sum, { restarts }) => sum + restarts, 0);
  }

  /** Starts all, the projector first: it makes what the others read. Returns where they listen. @throws StartError */
  async start(): Promise<string> {
    const isFirst = ({ planned: { roles } }: Place): boolean => roles.includes('projector');
    for (const wave of [this.#places.filter(isFirst), this.#places.filter((place) => !isFirst(place))]) {
      for (const place of wave) place.kept = this.#keep(place);
      await this.#unlessFailed(Promise.all(wave.map(async ({ ready }) => await ready.promise)));
      this.#stop.signal.throwIfAborted();
    }
    return this.#address ?? '';
  }

  /** Restarts one after the other; each is ready before the next goes. @throws StartError what `onFailed` was told */
  async restart(): Promise<void> {
    const { logger } = this.#options;
    if (this.#isRestarting || this.#stop.signal.aborted) {
      logger.warn('the processes are being restarted or stopped already');
      return;
    }
    this.#isRestarting = true;
    logger.info('the processes are restarted, one after the other');
    try {
      for (const place of this.#places) await this.#restartOne(place);
      if (!this.#stop.signal.aborted) logger.info('all processes were restarted');
    } finally {
      this.#isRestarting = false;
    }
  }

  async stop(reason: string): Promise<void> {
    this.#stop.abort();
    const { drainMs } = this.#options;
    await Promise.all(
      this.#places.map(async ({ current, kept, ready }) => {
        await current?.stop({ reason, drainMs, othersServe: false });
        await kept;
        ready.resolve();
      }),
    );
  }

  /** Says to all which embedded servers have ended; those that are forked later hear it at their start. */
  tellServers(down: ServersDown): void {
    for (const { current } of this.#places) current?.tellServers(down);
  }

  /** The answers of all that are ready. */
  async ask(what: Question): Promise<readonly string[]> {
    const ready = this.#places.filter(({ isReady, isLeaving }) => isReady && (what === 'metrics' || !isLeaving));
    const answers = await Promise.all(ready.map(async ({ current }) => (await current?.ask(what)) ?? null));
    return answers.filter((answer) => answer !== null);
  }

  /** Requests are taken, and no process lacks what it needs; one that is being replaced does not count. */
  async isReady(): Promise<boolean> {
    if (this.#stop.signal.aborted) return false;
    if (!this.#places.some(({ planned, isReady, isLeaving }) => planned.isServing && isReady && !isLeaving))
      return false;
    const answers = await this.ask('ready');
    return answers.length > 0 && answers.every((answer) => answer === 'yes');
  }

  async #restartOne(place: Place): Promise<void> {
    const { signal } = this.#stop;
    await this.#unlessFailed(place.ready.promise);
    const { current } = place;
    if (signal.aborted || current === null) return;
    place.isLeaving = true;
    place.ready = Promise.withResolvers();
    const drainMs = Math.max(LEAVING_MS, this.#options.drainMs);
    await current.stop({ reason: 'a restart', drainMs, othersServe: true });
    await this.#unlessFailed(place.ready.promise);
  }

  async #keep(place: Place): Promise<void> {
    const { logger, pause = PAUSE_MS } = this.#options;
    const { number } = place.planned;
    const { signal } = this.#stop;
    for (let deaths = 0, failedStarts = 0; !signal.aborted;) {
      const begun = performance.now();
      const { started, how } = await this.#runOne(place);
      if (signal.aborted) return;
      const isStarted = 'address' in started;
      failedStarts = isStarted ? 0 : failedStarts + 1;
      if (place.isLeaving) {
        place.isLeaving = false;
        continue;
      }
      if (isStarted) place.ready = Promise.withResolvers();
      if (isStarted && performance.now() - begun >= HEALTHY_MS) deaths = 0;
      const reason = isStarted ? null : started.failed;
      if (this.#isHopeless(place, reason, failedStarts)) return;
      place.restarts++;
      logger.error({ of: number, how, reason: reason?.message }, 'a process has ended and is started again');
      await delay(backoffMs(deaths++, pause), signal);
    }
  }

  /** From its start to its end; one that the system has no room for has ended, too. */
  async #runOne(place: Place): Promise<{ readonly started: Started; readonly how: string }> {
    let process: KeptProcess;
    try {
      process = this.#options.fork(place.planned);
    } catch (error) {
      return { started: { failed: null }, how: error instanceof Error ? error.message : String(error) };
    }
    place.current = process;
    const started = await process.started;
    if ('address' in started) this.#isUp(place, started.address);
    const how = await process.exited;
    place.current = null;
    place.isReady = false;
    return { started, how };
  }

  #isUp(place: Place, address: string | null): void {
    const { logger } = this.#options;
    place.isReady = true;
    place.wasReady = true;
    this.#address ??= address;
    logger.info({ of: place.planned.number, roles: place.planned.roles }, 'a process is ready');
    place.ready.resolve();
  }

  /** Before the first is ready, what an operator can mend ends the start; later it may be mended meanwhile. */
  #isHopeless({ planned, wasReady }: Place, reason: StartError | null, failedStarts: number): boolean {
    const isFirst = reason !== null && !wasReady;
    if (!isFirst && failedStarts < STARTS_MAX) return false;
    const what = `process ${planned.number} has ended ${failedStarts} times before it was ready; its log says why`;
    const failure = reason ?? new StartError(what);
    this.#failed.reject(failure);
    this.#options.onFailed(failure);
    return true;
  }

  async #unlessFailed<T>(work: Promise<T>): Promise<T> {
    return await Promise.race([work, this.#failed.promise]);
  }
}
