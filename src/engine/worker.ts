import type { TurnPlace, TurnRunner } from '../commands/session/turn-runner.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { OpenSession, SessionDraft, SessionState } from '../domain/session/state.ts';
import type { TurnContext } from '../domain/turn/context.ts';
import * as process from '../domain/turn/process.ts';
import { hasJobs, isReady, retryDueMs } from '../domain/turn/jobs.ts';
import { signInsOf } from '../domain/turn/sign-ins.ts';
import { nextSandboxCall, rootOf } from '../domain/turn/state.ts';
import type { ActiveTurn } from '../domain/turn/state.ts';
import { isUnavailableError } from '../lib/unavailable.ts';
import { backoffMs, delay } from '../lib/backoff.ts';
import { faultPoint } from '../lib/fault-points.ts';
import { eventsOf } from '../streams/commit.ts';
import type { Commit } from '../streams/commit.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';
import type { WorkItem, WorkQueue } from '../streams/work-queue.ts';
import { Calls } from './calls.ts';
import type { ClaimLeases } from './claim-leases.ts';
import type { WorkerLiveness } from './liveness.ts';
import { McpCaller } from './mcp-calls.ts';
import type { McpCallDeps } from './mcp-calls.ts';
import { ModelCaller } from './model-call.ts';
import type { ModelCallDeps } from './model-call.ts';
import type { WantedCall } from './model-request.ts';
import { OutputsExporter } from './outputs-export.ts';
import { Places } from './places.ts';
import type { Place } from './places.ts';
import { SandboxCaller } from './sandbox-calls.ts';
import type { SandboxCallDeps } from './sandbox-call.ts';
import { SessionChecks } from './session-checks.ts';
import { completedSignIns } from './sign-ins.ts';
import type { Vaults } from './sign-ins.ts';
import { turnStep } from './turn-step.ts';
import { UnconfirmedClaims } from './unconfirmed-claims.ts';
import { WaitingRoom } from './waiting-room.ts';

export interface WorkerOptions extends Omit<ModelCallDeps, 'stopping'> {
  readonly work: WorkQueue;
  /** Runs the built-in tools of agents; null: no agent has any. */
  readonly sandboxes: SandboxCallDeps | null;
  /** Calls MCP servers; null: no agent has any. */
  readonly mcp: McpCallDeps | null;
  readonly liveness: WorkerLiveness;
  /** What is known about executors that hold claims. */
  readonly claims: Pick<ClaimLeases, 'lapsed'>;
  readonly vaults: Vaults;
  /** Turns that run at the same time in this process. */
  readonly concurrency: number;
  /** Those of one tenant while no other has any; absent: `concurrency`. */
  readonly tenantConcurrency?: number;
  /** After this a stopping worker abandons the calls still in progress, ms. */
  readonly drainMs?: number;
}

/** A stopping node has handed back its turns within 10 s, including closing its connections. */
const DRAIN_MS = 8_000;
/** How often an item without a place here is returned to the queue: another process may have one. */
const GIVEN_BACK_MAX = 2;
const GIVEN_BACK_MS = 25;
/**
 * Between two attempts at a turn while the log is unavailable; once it is back, the turn continues within this time.
 */
const RETRY = { baseMs: 100, capMs: 2_000 };

/**
 * Runs turns: those whose commands this process accepted, and those that it takes from the work queue.
 *
 *   idle → running (claims, drives) → draining (`stop`: each turn is handed back at its next recorded step) → stopped
 *
 * A turn is driven from the fold of its session alone. Whatever is lost here, another worker finds in the log.
 */
export class Worker implements TurnRunner {
  readonly #options: WorkerOptions & ModelCallDeps;
  readonly #calls: ModelCaller;
  readonly #sandboxes: SandboxCaller | null;
  readonly #mcp: McpCaller | null;
  readonly #outputs: OutputsExporter | null;
  readonly #stopping = new AbortController();
  /** Aborted when a drain has taken too long. */
  readonly #givingUp = new AbortController();
  readonly #running = new Map<string, Promise<void>>();
  readonly #unconfirmed: UnconfirmedClaims;
  #unlisten = (): void => undefined;
  readonly #checks: SessionChecks;
  readonly #places: Places;
  readonly #waiting = new WaitingRoom();
  #taking: Promise<void> = Promise.resolve();

  constructor(options: WorkerOptions) {
    this.#options = { ...options, stopping: this.#stopping.signal };
    this.#calls = new ModelCaller(this.#options, this.#givingUp.signal);
    this.#checks = new SessionChecks(options.logger, this.#stopping.signal);
    this.#mcp = options.mcp && new McpCaller(this.#options, options.mcp, this.#givingUp.signal);
    this.#sandboxes = options.sandboxes && new SandboxCaller(this.#options, options.sandboxes, this.#givingUp.signal);
    this.#outputs =
      options.sandboxes && new OutputsExporter(this.#options, options.sandboxes.sandboxes, this.#givingUp.signal);
    const { concurrency: total, tenantConcurrency: perTenant = total } = options;
    this.#places = new Places({ total, perTenant: Math.min(total, perTenant) }, () => this.#fillPlaces());
    this.#unconfirmed = new UnconfirmedClaims({
      sessions: options.sessions,
      onKnown: (ref, state) => this.#runOwned(ref, state),
    });
  }

  /** Turns that this process holds. */
  get active(): number {
    return this.#running.size;
  }

  start(): void {
    this.#unlisten = this.#options.loop.onUnknown(({ ref, commit, after }) => {
      if (ref.kind === 'session' && this.#claims(commit)) this.#unconfirmed.note(ref, after);
    });
    const options = { hasRoom: async () => await this.#checks.room(), signal: this.#stopping.signal };
    this.#taking = this.#options.work.take(
      (item) => this.#checks.start(item.ref, async () => await this.#takeItem(item)),
      options,
    );
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    const timer = setTimeout(() => this.#givingUp.abort(), this.#options.drainMs ?? DRAIN_MS);
    await this.#taking;
    await this.#checks.settled();
    this.#unlisten();
    await Promise.all([this.#unconfirmed.stop(), ...this.#running.values()]);
    clearTimeout(timer);
  }

  reserve(tenant: string): TurnPlace | null {
    const place = this.#stopping.signal.aborted ? null : this.#placeToClaim(tenant);
    if (place === null) return null;
    let isRunning = false;
    const run = (ref: AggregateRef): void => {
      isRunning = true;
      this.#run(ref, place);
    };
    const free = (): void => {
      if (!isRunning) place.free();
    };
    return { workerId: this.#options.workerId, run, free };
  }

  /** A place for a turn that is to be claimed; none while more claims are unconfirmed than can be tracked. */
  #placeToClaim(tenant: string): Place | null {
    return this.#unconfirmed.isFull ? null : this.#places.reserve(tenant);
  }

  /** Freed places go to those that wait for one, first to the tenant that holds the fewest. */
  #fillPlaces(): void {
    while (!this.#stopping.signal.aborted) {
      const ref = this.#waiting.take(
        (tenant) => this.#places.isOpenTo(tenant),
        (tenant) => this.#places.heldBy(tenant),
      );
      if (ref === null) return;
      const place = this.#places.hold(ref.tenant);
      this.#checks.start(ref, async () => await this.#takeOver(ref, place));
    }
  }

  adopt(ref: AggregateRef): void {
    if (this.#running.has(refKey(ref))) return;
    this.#options.sessions.load(ref).then(
      ({ state }) => this.#runOwned(ref, state),
      (error: unknown) => {
        this.#options.logger.warn({ err: error, session: ref.id }, 'a turn in passing could not be checked');
      },
    );
  }

  /** Runs the session's turn if it is this worker's. While stopping, it leaves what it has not started to others. */
  #runOwned(ref: AggregateRef, state: SessionState): void {
    if (this.#owned(state) !== null && !this.#stopping.signal.aborted) this.#run(ref, null);
  }

  #claims(commit: Commit): boolean {
    const { workerId } = this.#options;
    return eventsOf<SessionEvent>(commit).some(
      ({ type, data }) => type === 'segment.claimed' && data.workerId === workerId,
    );
  }

  /**
   * Handles the session after whatever this process is still doing for it. While it waits it holds no place: others
   * could not use it meanwhile.
   */
  #run(ref: AggregateRef, place: Place | null): void {
    const key = refKey(ref);
    const before = this.#running.get(key);
    if (before !== undefined) place?.free();
    const held = before === undefined ? (place ?? this.#places.hold(ref.tenant)) : null;
    const mine = (before ?? Promise.resolve())
      .then(async () => {
        const mineToFree = held ?? this.#places.hold(ref.tenant);
        await this.#drive(ref).finally(() => mineToFree.free());
      })
      .finally(() => {
        if (this.#running.get(key) === mine) this.#running.delete(key);
      });
    this.#running.set(key, mine);
  }

  async #failTurn(ref: AggregateRef): Promise<void> {
    await turnStep(this.#options, { ref, causation: 'worker failure' }, (draft, context) => {
      if (this.#owned(draft.state) !== null)
        process.fail(draft, { code: 'internal_error', message: 'The turn met an internal error.' }, context);
    });
  }

  async #takeItem(item: WorkItem): Promise<void> {
    const { ref } = item;
    const isLeft = await this.#takeOver(ref, null);
    if (isLeft && (item.deliveries <= GIVEN_BACK_MAX || this.#stopping.signal.aborted)) {
      await item.giveBack(GIVEN_BACK_MS);
      return;
    }
    if (isLeft) this.#waiting.add(ref);
    // A place may have become free during the check.
    this.#fillPlaces();
    await item.done();
  }

  /**
   * The session may need a worker, or a time of its turn may have passed: whatever is due is recorded, and a turn that
   * has something to run and no living worker is claimed, if there is a place for it. Returns whether it is left
   * without one for lack of a place.
   * @param given a place that is held for it; it is freed if it is not needed
   */
  async #takeOver(ref: AggregateRef, given: Place | null): Promise<boolean> {
    const { sessions, claims, vaults } = this.#options;
    let place = given;
    try {
      const { state } = await sessions.refresh(ref);
      const seen = turnOf(state);
      const isLost = seen !== null && this.#isLost(seen);
      const signedIn = await completedSignIns(vaults, ref.tenant, seen === null ? [] : signInsOf(seen));
      const isIdle = seen?.claim === null && (hasJobs(seen) || signedIn.size > 0);
      if (isLost || isIdle) place ??= this.#placeToClaim(ref.tenant);
      const at = { tenant: ref.tenant, shard: sessions.store.shardOf(ref) };
      const lapsed = seen === null ? undefined : await claims.lapsed(at, seen);
      const outcome = await turnStep(
        this.#options,
        { ref, causation: 'take-over', lapsed, signedIn },
        (draft, context) => this.#takeOn(draft, { ...context, seen, hasPlace: place !== null }),
      );
      await faultPoint('turn.claimed');
      if (outcome === 'ours') {
        this.#run(ref, place);
        place = null;
      }
      return outcome === 'left';
    } finally {
      place?.free();
    }
  }

  /** `left`: the turn has something to run, and no worker runs it, for lack of a place here. */
  #takeOn(draft: SessionDraft, context: TakeOverContext): 'ours' | 'left' | 'done' {
    const { workerId } = this.#options;
    const { seen, hasPlace, ...clock } = context;
    const turn = turnOf(draft.state);
    if (turn === null) return 'done';
    const isOrphan = this.#isOrphan(turn, seen);
    const isOurs = turn.claim?.workerId === workerId;
    if (isOrphan && hasPlace && context.release !== true) process.claim(draft, workerId, clock);
    else process.advance(draft, hasPlace || isOurs ? clock : { ...clock, workerId: null });
    if (this.#owned(draft.state) !== null) return 'ours';
    const after = turnOf(draft.state);
    if (hasPlace || after === null) return 'done';
    return after.wanted || (isOrphan && after.turnId === turn.turnId && after.claim !== null) ? 'left' : 'done';
  }

  #isOrphan(turn: ActiveTurn, seen: ActiveTurn | null): boolean {
    // A claim made since may belong to a worker too new to be known as alive.
    const isSeen = turn.turnId === seen?.turnId && turn.epoch === seen.epoch;
    return isSeen && this.#isLost(turn);
  }

  /** Its worker is gone. This one is alive, whatever its lease says: leases expire while the log is stalled. */
  #isLost({ claim }: ActiveTurn): boolean {
    const { liveness, workerId } = this.#options;
    return claim !== null && claim.workerId !== workerId && !liveness.isAlive(claim.workerId);
  }

  /**
   * Runs the turn's effects, those of several agents concurrently, for as long as the turn is ours. A turn that this
   * process holds is never just dropped: its lease would keep others away. What fails is met here, while the turn's
   * other calls, which may take long, continue.
   */
  async #drive(ref: AggregateRef): Promise<void> {
    const { sessions, clock } = this.#options;
    const calls = new Calls();
    const unwatch = sessions.watch(ref, () => calls.wake.raise());
    const onStop = (): void => calls.wake.raise();
    this.#stopping.signal.addEventListener('abort', onStop);
    const unheard = clock.onJump?.(onStop);
    let isDone = false;
    for (let failures = 0; !isDone;) {
      try {
        isDone = await this.#driveOn(ref, calls);
      } catch (error) {
        // One that stops meanwhile still has to hand the turn back.
        isDone = this.#stopping.signal.aborted;
        await this.#meetFailure(ref, error, failures++);
      }
    }
    this.#stopping.signal.removeEventListener('abort', onStop);
    unheard?.();
    unwatch();
    await calls.settled();
    await this.#sandboxes?.leave(ref);
  }

  /**
   * Makes the calls that the turn waits for and records what is due, then waits for a reason to look again. Returns
   * whether the turn is no longer ours, and none of its calls is left: what one of them has still recorded may have
   * begun the session's next turn, in this worker's name.
   * @throws why a call could not be made or recorded, or the session not read
   */
  async #driveOn(ref: AggregateRef, calls: Calls): Promise<boolean> {
    const { sessions, clock } = this.#options;
    calls.throwFailure();
    const isLast = calls.size === 0;
    const { state, position } = await sessions.load(ref);
    const session = this.#owned(state);
    if (session === null) {
      if (!isLast) await calls.wake.wait(null);
      return isLast;
    }
    const { turn } = session;
    this.#startCalls(calls, { ref, session, turn, position });
    const isStopping = this.#stopping.signal.aborted;
    const isOver = isStopping && calls.size === 0;
    const dueMs = retryDueMs(turn);
    if ((isReady(turn, clock()) || isOver) && (await this.#advance(ref, position))) return false;
    // While it stops, no retry begins: it waits for the calls that it still has.
    await calls.wake.wait(dueMs === null || isStopping ? null : Math.max(1, dueMs - clock()));
    return false;
  }

  /**
   * A step or a call of the turn has failed. Outages of the log are waited out, and it is made again, for it is still
   * needed; a bug ends the turn as failed, and with it its other calls.
   */
  async #meetFailure(ref: AggregateRef, error: unknown, failures: number): Promise<void> {
    this.#options.logger.error({ err: error, session: ref.id, tenant: ref.tenant }, 'a turn could not be driven on');
    if (!isUnavailableError(error, 'streams')) await this.#failTurn(ref).catch(() => undefined);
    await delay(backoffMs(failures, RETRY), this.#stopping.signal);
  }

  #startCalls(calls: Calls, wanted: Omit<WantedCall, 'thread' | 'pending'>): void {
    const { ref, session, turn } = wanted;
    const call = nextSandboxCall(turn);
    // One after the other: they work on the same files.
    const run = async () => call && (await this.#sandboxes?.run({ ref, session, turn, call }));
    if (call !== undefined) calls.start('sandbox', run);
    if (rootOf(turn).outputs === 'requested')
      calls.start('outputs', async () => await this.#outputs?.run({ ref, session, turn }));
    this.#mcp?.start(calls, { ref, session, turn });
    for (const thread of Object.values(wanted.turn.threads)) {
      const { pending } = thread;
      if (pending === null) continue;
      calls.start(pending.callId, async () => {
        await this.#calls.run({ ...wanted, thread, pending });
      });
    }
  }

  /**
   * Returns whether the turn has changed since the position: also with nothing to record, when an unconfirmed step
   * turns out to be stored.
   */
  async #advance(ref: AggregateRef, since: number): Promise<boolean> {
    await turnStep(this.#options, { ref, causation: 'advance' }, (draft, context) => {
      if (this.#owned(draft.state) !== null) process.advance(draft, context);
    });
    return (await this.#options.sessions.load(ref)).position !== since;
  }

  #owned(state: SessionState): (OpenSession & { readonly turn: ActiveTurn }) | null {
    if (state.status !== 'open' || state.turn?.claim?.workerId !== this.#options.workerId) return null;
    return { ...state, turn: state.turn };
  }
}

interface TakeOverContext extends TurnContext {
  /** The turn as it was before the living workers were looked up. */
  readonly seen: ActiveTurn | null;
  readonly hasPlace: boolean;
}

function turnOf(state: SessionState): ActiveTurn | null {
  return state.status === 'open' ? state.turn : null;
}
