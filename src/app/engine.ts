import type { CommandLoop } from '../commands/execute.ts';
import type { Repository } from '../commands/repository.ts';
import type { TurnRunner } from '../commands/session/turn-runner.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { SessionState } from '../domain/session/state.ts';
import { fixtureModel as fixtureDriver } from '../drivers/model/fixture.ts';
import type { ModelDrivers } from '../drivers/model/port.ts';
import { BudgetGate } from '../engine/budget-gate.ts';
import type { ClaimLeases } from '../engine/claim-leases.ts';
import type { ModelCallDeps } from '../engine/model-call.ts';
import { Dispatcher } from '../engine/dispatcher.ts';
import type { InheritedConversations } from '../engine/inherited-conversations.ts';
import { WorkerLiveness } from '../engine/liveness.ts';
import type { McpCallDeps } from '../engine/mcp-calls.ts';
import { PodReconciler } from '../engine/pod-reconciler.ts';
import type { SandboxCallDeps } from '../engine/sandbox-call.ts';
import type { Vaults } from '../engine/sign-ins.ts';
import { Worker } from '../engine/worker.ts';
import type { OnRound } from '../lib/background-task.ts';
import type { Clock } from '../lib/clock.ts';
import { newId } from '../lib/ids.ts';
import type { Logger } from '../lib/logger.ts';
import type { Stack } from '../lib/stack.ts';
import type { LogPorts } from './log.ts';
import type { Previews } from '../streams/previews.ts';
import { mcpDriver } from './mcp-driver.ts';
import { openModels } from './models.ts';
import { openSandboxes } from './sandboxes.ts';
import { sandboxNetwork } from './sandbox-network.ts';
import type { Services } from './services.ts';

interface EngineOptions {
  readonly log: LogPorts;
  readonly loop: CommandLoop;
  readonly sessions: Repository<SessionState, SessionEvent>;
  readonly models: ModelDrivers;
  readonly previews: Previews;
  readonly callMs: number;
  readonly budgets: BudgetGate;
  readonly files: ModelCallDeps['files'];
  readonly conversations: InheritedConversations;
  readonly nodeId: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly turns: number;
  readonly turnsPerTenant: number;
  readonly drainMs: number | undefined;
  readonly claims: ClaimLeases;
  readonly vaults: Vaults;
  readonly sandboxes: SandboxCallDeps;
  readonly mcp: McpCallDeps;
  readonly onCall: NonNullable<ModelCallDeps['onCall']>;
  readonly onRound: OnRound;
}

/** The engine of a node: its worker and, for each stream, a dispatcher. On a node without the role, only the outlook. */
export class Engine {
  readonly #options: EngineOptions;
  readonly #liveness: WorkerLiveness;
  #worker: Worker | null = null;
  #dispatchers: readonly Dispatcher[] = [];

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#liveness = new WorkerLiveness(options.log.leases, options.logger);
  }

  get active(): number {
    return this.#worker?.active ?? 0;
  }

  get unattended(): number {
    return this.#dispatchers.reduce((count, { unattendedTurns }) => count + unattendedTurns, 0);
  }

  get runner(): TurnRunner | null {
    return this.#worker;
  }

  /** @throws when no live worker is known in the installation */
  async check(): Promise<void> {
    await Promise.resolve();
    if (!this.#liveness.anyAlive) throw new Error('no worker is alive');
  }

  async start(withRole: boolean): Promise<void> {
    const { clock, drainMs } = this.#options;
    const { log, loop, sessions, models, budgets, files, conversations, nodeId, logger, claims, sandboxes, onCall } =
      this.#options;
    const { previews, callMs, mcp, vaults } = this.#options;
    await this.#liveness.start();
    if (!withRole) return;
    const workerId = newId('wk');
    await this.#liveness.announce(nodeId, workerId);
    this.#worker = new Worker({
      workerId,
      loop,
      sessions,
      work: log.work,
      liveness: this.#liveness,
      claims,
      vaults,
      models,
      previews,
      callMs,
      files,
      sandboxes,
      mcp,
      budgets,
      conversations,
      clock,
      logger,
      concurrency: this.#options.turns,
      tenantConcurrency: this.#options.turnsPerTenant,
      onCall,
      ...(drainMs === undefined ? {} : { drainMs }),
    });
    this.#worker.start();
    this.#dispatchers = Array.from({ length: log.source.shards }, (_, shard) => {
      const { source, store, work, leases, snapshots: checkpoints } = log;
      return new Dispatcher({
        shard,
        nodeId,
        source,
        store,
        work,
        leases,
        checkpoints,
        claims,
        feed: log.feed,
        vaults,
        liveness: this.#liveness,
        clock,
        logger,
        onRound: this.#options.onRound,
      });
    });
    for (const dispatcher of this.#dispatchers) dispatcher.start();
  }

  /** The worker hands its turns back first; only then does the lease go, so that no worker takes what is being handed back. */
  async stop(): Promise<void> {
    try {
      await this.#worker?.stop();
    } finally {
      await Promise.all(this.#dispatchers.map(async (dispatcher) => await dispatcher.stop()));
      await this.#liveness.stop(this.#worker === null ? null : this.#options.nodeId);
    }
  }
}

/** Starts the engine of a node, with the models that its turns call and the budgets that they are checked on. */
export async function startEngine(services: Services, stack: Stack): Promise<Engine> {
  const { options, log, directory, write, artifacts, metrics, leases: claims } = services;
  const { config, nodeId, clock, logger } = options;
  const { loop, sessions, conversations, budgets: spending } = write;
  const isBudgeted = (tenantId: string): boolean => directory.tenant(tenantId)?.budgeted === true;
  const onRefused = (): void => metrics.budgetRefusals.inc();
  const mayAllot = (): boolean => !services.registry.isNewToSome('allotments');
  const budgets = new BudgetGate({
    ...{ loop, budgets: spending, clock, isBudgeted, onRefused, mayAllot, logger },
  });
  stack.defer('budgets', async () => await budgets.stop());
  const { fixtureModel, egress, turns, turnsPerTenant, models: patience } = config;
  const fixture = fixtureModel ? (options.memory?.model ?? fixtureDriver) : null;
  const models = openModels({ directory, secrets: log.secrets, fixture, egress, patience, clock, logger });
  stack.defer('models', models.close);
  const { files } = artifacts;
  const driver = openSandboxes({ config: config.sandboxes, path: undefined, logger });
  stack.defer('sandboxes', async () => await driver.stop());
  const mcp = mcpDriver({ egress, log, write, actor: `node:${nodeId}`, clock, stack });
  const engine = new Engine({
    ...{ log, loop, sessions, conversations, models: models.drivers, budgets, files },
    ...{ previews: services.previews, callMs: patience.callMs },
    vaults: write.vaults,
    ...{ nodeId, clock, logger, turns, turnsPerTenant, claims, onCall: (call) => metrics.called(call) },
    sandboxes: {
      ...{ sandboxes: services.sandboxes.deps, driver, onExec: (exec) => metrics.executed(exec) },
      network: sandboxNetwork({ egress, log, write, actor: `host:${nodeId}`, clock, stack }).of,
    },
    mcp: { driver: mcp, artifacts: services.artifacts.routes },
    onRound: metrics.onRound,
    drainMs: options.memory?.drainMs,
  });
  const pauseMs = config.sandboxes.pods.sweepMs;
  const pods = new PodReconciler({ deps: services.sandboxes.deps, logger, pauseMs, onRound: metrics.onRound });
  if (config.roles.includes('engine')) pods.start();
  stack.defer('care for pods', async () => await pods.stop());
  await engine.start(config.roles.includes('engine'));
  stack.defer('engine', async () => await engine.stop());
  return engine;
}
