import { budgetType, sessionType, vaultType } from '#src/commands/aggregate.ts';
import type { ArtifactDeps } from '#src/commands/artifact/deps.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import type { Manifest, UsedAgents } from '#src/domain/agent/manifest.ts';
import type { Decision } from '#src/domain/kernel/decision.ts';
import { decideCancel, decideMessage, decideOpenSession } from '#src/domain/session/decide.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import type { SessionState } from '#src/domain/session/state.ts';
import type { TurnContext } from '#src/domain/turn/context.ts';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import type { McpDriver } from '#src/drivers/mcp/port.ts';
import type { ModelDriver, ModelRequest, OnModelDelta } from '#src/drivers/model/port.ts';
import { BudgetGate } from '#src/engine/budget-gate.ts';
import { ClaimLeases } from '#src/engine/claim-leases.ts';
import { InheritedConversations } from '#src/engine/inherited-conversations.ts';
import { Dispatcher } from '#src/engine/dispatcher.ts';
import type { McpCallDeps } from '#src/engine/mcp-calls.ts';
import { WorkerLiveness } from '#src/engine/liveness.ts';
import { Worker } from '#src/engine/worker.ts';
import { systemClock } from '#src/lib/clock.ts';
import type { Clock } from '#src/lib/clock.ts';
import { newId } from '#src/lib/ids.ts';
import { UnavailableError } from '#src/lib/unavailable.ts';
import type { CommitSource } from '#src/streams/event-store.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import { LEASES } from '#src/streams/jetstream/topology.ts';
import { JetStreamWorkQueue } from '#src/streams/jetstream/work-queue.ts';
import type { KeyValue } from '#src/streams/key-value.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import type { WorkQueue } from '#src/streams/work-queue.ts';
import type { TestLog } from './jetstream.ts';
import { capturedLog } from './logger.ts';
import type { LogLine } from './logger.ts';
import { overriding } from './overriding.ts';
import { openCommand, usage } from './sessions.ts';
import { until } from './wait-until.ts';

type Behaviour = (
  request: ModelRequest,
  signal: AbortSignal,
  call: number,
  onDelta: OnModelDelta,
) => Promise<ModelOutcome> | ModelOutcome;

/** A model that does what the test says, and remembers what it was asked. */
export class TestModel implements ModelDriver {
  readonly calls: { readonly callId: string; readonly atMs: number }[] = [];
  readonly #behaviour: Behaviour;

  constructor(behaviour: Behaviour = () => answered('done')) {
    this.#behaviour = behaviour;
  }

  async call(request: ModelRequest, signal: AbortSignal, onDelta: OnModelDelta): Promise<ModelOutcome> {
    this.calls.push({ callId: request.callId, atMs: Date.now() });
    return await this.#behaviour(request, signal, this.calls.length, onDelta);
  }
}

export const answered = (text: string): ModelOutcome => ({ kind: 'completed', text, toolCalls: [], usage: usage() });

/** Calls of tools or agents, each with a task of its own: `task 0`, `task 1`. */
export const calling = (...names: string[]): ModelOutcome => ({
  kind: 'completed',
  text: '',
  toolCalls: names.map((name, n) => ({ callId: `c${n}`, name, input: { task: `task ${n}` } })),
  usage: usage(),
});

/** Settles when the signal aborts, as a driver has to. */
export async function untilAborted(signal: AbortSignal): Promise<ModelOutcome> {
  if (!signal.aborted) await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  const error = { code: 'cancelled', message: 'Cancelled.' };
  return { kind: 'failed', error, retryAfterMs: null, usage: usage({ tokensReported: false }) };
}

/** A door that is shut until the test opens it, or ends. */
export class Gate {
  static readonly #all = new Set<Gate>();
  open: () => void = () => undefined;
  readonly opened = new Promise<void>((resolve) => (this.open = resolve));

  constructor() {
    Gate.#all.add(this);
  }

  /** So that a test that failed leaves nobody waiting. */
  static openAll(): void {
    for (const gate of Gate.#all) gate.open();
    Gate.#all.clear();
  }
}

/** Whatever stores a result fails. */
function mcpCalls(driver: McpDriver | undefined): McpCallDeps | null {
  return driver === undefined ? null : { driver, artifacts: {} as ArtifactDeps };
}

export interface NodeOptions {
  readonly model?: ModelDriver;
  /** Lists tools of MCP servers; no result of these tools is stored. Absent: no agent has servers. */
  readonly mcp?: McpDriver;
  readonly work?: (queue: WorkQueue) => WorkQueue;
  readonly source?: CommitSource;
  readonly follow?: CommitSource['follow'];
  readonly checkpoints?: (bucket: KeyValue) => KeyValue;
  readonly concurrency?: number;
  readonly tenantConcurrency?: number;
  readonly drainMs?: number;
  readonly nodeId?: string;
  /** Of everything that the turn decides by; leases of workers keep to the real time. */
  readonly clock?: Clock;
  /** How long a call may take, ms. */
  readonly callMs?: number;
  /** Told what readers are shown of an answer; absent: nobody asks for it. */
  readonly onPreview?: (text: string) => void;
  /** Told whenever a call's cost is about to be settled with the tenant's budgets. */
  readonly onSettle?: (callId: string) => void;
}

/** The write side and the engine of one node, put together as the composition root does; nothing runs yet. */
export class TestNode implements AsyncDisposable {
  readonly nodeId: string;
  readonly workerId = newId('wk');
  readonly clock: Clock;
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly liveness: WorkerLiveness;
  readonly worker: Worker;
  readonly dispatcher: Dispatcher;
  readonly leases: KeyValue;
  readonly snapshots: KeyValue;
  /** Leases of executors' claims; its gap between signs of life is a second. */
  readonly claims: ClaimLeases;
  readonly lines: readonly LogLine[];
  readonly #log: TestLog;
  readonly #silent = new AbortController();
  #announced = false;

  constructor(log: TestLog, options: NodeOptions = {}) {
    this.nodeId = options.nodeId ?? newId('wk');
    const { clock = systemClock } = options;
    this.clock = clock;
    this.loop = new CommandLoop(clock, () => 1);
    this.#log = log;
    const { buckets } = log.topology;
    const { logger, lines } = capturedLog();
    this.lines = lines;
    this.leases = new JetStreamKeyValue(log.connections.appends, { kv: buckets.leases, ...LEASES });
    this.snapshots = new JetStreamKeyValue(log.connections.appends, { kv: buckets.snapshots, name: 'SNAPSHOT' });
    const { loop, workerId, nodeId, leases } = this;
    const sessions = new Repository({ type: sessionType, store: log.store, cacheBytes: 10_000_000 });
    this.sessions = sessions;
    log.feed.listen({
      onCommit: (commit) => {
        if (commit.ref.kind === 'session') sessions.live(commit);
      },
      onDisruption: () => sessions.disrupted(),
    });
    const real = new JetStreamWorkQueue(log.connections.consumers);
    const queue = overriding<WorkQueue>(real, {
      take: async (handle, { hasRoom, signal }) =>
        await real.take(handle, { hasRoom, signal: AbortSignal.any([signal, this.#silent.signal]) }),
    });
    const work = options.work?.(queue) ?? queue;
    const liveness = new WorkerLiveness(leases, logger);
    this.liveness = liveness;
    const models = new Map([['fixture', options.model ?? new TestModel()]]);
    const { concurrency = 50, tenantConcurrency = concurrency, drainMs } = options;
    const { follow, source = follow === undefined ? log.source : overriding<CommitSource>(log.source, { follow }) } =
      options;
    const drain = drainMs === undefined ? {} : { drainMs };
    const ask = async (shard: number): Promise<number> => await log.source.newest(shard, ['session']);
    const claims = new ClaimLeases({ leases, clock, logger, leaseMs: 1_000, shards: 1, ask });
    this.claims = claims;
    const vaults = new Repository({ type: vaultType, store: log.store, cacheBytes: 1_000_000 });
    const shared = { work, liveness, claims, vaults, clock, logger };
    const { onPreview } = options;
    const previews = {
      isAsked: () => onPreview !== undefined,
      send: (_: AggregateRef, text: string) => onPreview?.(text),
    };
    const spending = new Repository({ type: budgetType, store: log.store, cacheBytes: 1_000_000 });
    const gate = new BudgetGate({
      loop,
      budgets: spending,
      clock,
      isBudgeted: () => false,
      mayAllot: () => false,
      logger,
    });
    const budgets = overriding<BudgetGate>(gate, {
      settle: async (tenant, call, actor) => {
        options.onSettle?.(call.callId);
        await gate.settle(tenant, call, actor);
      },
    });
    // Nothing that these turns are asked names a file.
    const files = async (): Promise<null> => await Promise.resolve(null);
    const conversations = new InheritedConversations(sessions, 10_000_000);
    const parts = {
      ...shared,
      workerId,
      loop,
      sessions,
      conversations,
      models,
      budgets,
      files,
      sandboxes: null,
      mcp: mcpCalls(options.mcp),
      previews,
      callMs: options.callMs ?? 600_000,
    };
    this.worker = new Worker({ ...parts, concurrency, tenantConcurrency, ...drain });
    this.dispatcher = new Dispatcher({
      ...shared,
      // No turn of these tests waits for a vault.
      feed: { listen: () => () => undefined },
      shard: 0,
      nodeId,
      source,
      store: log.store,
      leases,
      checkpoints: options.checkpoints?.(this.snapshots) ?? this.snapshots,
    });
  }

  /** Announces the worker and lets it take work. */
  async start(): Promise<void> {
    await this.liveness.start();
    await this.claims.start();
    this.claims.hear();
    await this.liveness.announce(this.nodeId, this.workerId);
    this.#announced = true;
    this.worker.start();
  }

  async openSession(
    ref: AggregateRef,
    limits: Manifest['limits'] = {},
    { agents, ...more }: Omit<Partial<Manifest>, 'agents'> & { readonly agents?: UsedAgents } = {},
  ): Promise<void> {
    const used = Object.keys(agents ?? {}).map((agentId) => ({ agentId, description: '' }));
    const model = { provider: 'fixture', model: 'test' } as const;
    const manifest: Manifest = { instructions: '', model, limits, ...more, agents: used };
    const decide = (state: SessionState) =>
      decideOpenSession(state, openCommand(agents === undefined ? { manifest } : { manifest, agents }), null);
    await this.loop.execute(this.sessions, ref, { actor: 'application:test', causation: 'open', decide });
  }

  /** Accepts a message and runs its turn here, or leaves it to the work queue. */
  async message(ref: AggregateRef, where: 'here' | 'queue' = 'here'): Promise<string> {
    const place = where === 'here' ? this.worker.reserve(ref.tenant) : null;
    const workerId = place?.workerId ?? null;
    const context = () => ({ nowMs: this.clock(), jitter: 0, newTurnId: newId('tu'), workerId, tenantModel: null });
    const outcome = await this.loop.execute(this.sessions, ref, {
      actor: 'application:test',
      causation: 'message',
      decide: (state: SessionState) =>
        decideMessage(state, { requestId: 'r', subject: null, content: 'Hi' }, context()),
    });
    if (outcome.kind === 'rejected') throw new Error(`refused: ${outcome.code}`);
    place?.run(ref);
    return outcome.reply.turnId ?? '';
  }

  /** Takes a decision on a session as a command that came to this node; its worker runs what follows, if it has room. */
  async command<R extends object>(
    ref: AggregateRef,
    decide: (state: SessionState, context: TurnContext) => Decision<SessionEvent, R>,
  ): Promise<R> {
    const place = this.worker.reserve(ref.tenant);
    const context = () => ({ nowMs: this.clock(), jitter: 0, workerId: place?.workerId ?? null });
    const by = { actor: 'application:test', causation: 'command' };
    const outcome = await this.loop.execute(this.sessions, ref, {
      ...by,
      decide: (state: SessionState) => decide(state, context()),
    });
    if (outcome.kind === 'rejected') throw new Error(`refused: ${outcome.code}`);
    if ('claimed' in outcome.reply && outcome.reply.claimed === true) place?.run(ref);
    place?.free();
    return outcome.reply;
  }

  async cancel(ref: AggregateRef): Promise<void> {
    const decide = (state: SessionState) =>
      decideCancel(state, { requestId: 'c', subject: null }, { nowMs: this.clock(), jitter: 1, workerId: null });
    await this.loop.execute(this.sessions, ref, { actor: 'application:test', causation: 'cancel', decide });
  }

  /** Everything that happened in a session, from the log. */
  async events(ref: AggregateRef): Promise<SessionEvent[]> {
    const { commits } = await this.#log.store.read(ref, { after: 0, limit: 1_000 });
    return commits.flatMap(({ commit }) => commit.events as unknown as SessionEvent[]);
  }

  async types(ref: AggregateRef): Promise<string[]> {
    return (await this.events(ref)).map(({ type }) => type);
  }

  async turnEnds(ref: AggregateRef, timeoutMs = 45_000): Promise<SessionEvent> {
    return await until(
      'the turn has ended',
      async () => {
        // A log that comes back is not there for everybody at the same time.
        const events = await this.events(ref).catch((error: unknown) => {
          if (error instanceof UnavailableError) return [];
          throw error;
        });
        const last = events.findLast(({ type }) => /^turn\.(started|completed|failed|cancelled)$/.test(type));
        return last?.type === 'turn.started' ? undefined : last;
      },
      timeoutMs,
    );
  }

  /** As if its process had been paused: no more signs of life, no more work taken. What it does already goes on. */
  async fallSilent(): Promise<void> {
    this.#silent.abort();
    this.#announced = false;
    await this.liveness.stop(null);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.worker.stop();
    await this.dispatcher.stop();
    await this.claims.stop();
    await this.liveness.stop(this.#announced ? this.nodeId : null);
  }
}

/** The nodes that a test starts, to be ended after it. */
export class TestNodes {
  #nodes: TestNode[] = [];

  add(log: TestLog, options: NodeOptions = {}): TestNode {
    const node = new TestNode(log, options);
    this.#nodes.push(node);
    return node;
  }

  /** Dispatchers first: a worker that ends would otherwise have its turns handed to the next one. */
  async end(): Promise<void> {
    Gate.openAll();
    await Promise.all(this.#nodes.map(async (node) => await node.dispatcher.stop()));
    await Promise.all(this.#nodes.map(async (node) => await node[Symbol.asyncDispose]()));
    this.#nodes = [];
  }
}
