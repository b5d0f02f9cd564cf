import type { KeyObject } from 'node:crypto';
import { Metrics } from '#src/app/metrics/metrics.ts';
import { openLog } from '#src/app/log.ts';
import type { LogPorts } from '#src/app/log.ts';
import { agentType, sessionType, vaultType } from '#src/commands/aggregate.ts';
import { CommandLoop } from '#src/commands/execute.ts';
import { Repository } from '#src/commands/repository.ts';
import type { OpenSessionDeps } from '#src/commands/session/open-session.ts';
import { openSession } from '#src/commands/session/open-session.ts';
import { decideCancel, decideMessage } from '#src/domain/session/decide.ts';
import type { CommandReply } from '#src/domain/session/decide.ts';
import type { Decision } from '#src/domain/kernel/decision.ts';
import { isCanonical } from '#src/domain/session/canonical.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { receiptKey } from '#src/domain/session/receipts.ts';
import type { SessionState } from '#src/domain/session/state.ts';
import { settle } from '#src/domain/turn/process.ts';
import type { ToolCall } from '#src/domain/turn/events.ts';
import { NO_USAGE } from '#src/domain/turn/usage.ts';
import { turnStep } from '#src/engine/turn-step.ts';
import { systemClock } from '#src/lib/clock.ts';
import { sha256Hex } from '#src/lib/hash.ts';
import { newId } from '#src/lib/ids.ts';
import { createLogger } from '#src/lib/logger.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { noSandbox, noSandboxes } from '../test/support/no-sandboxes.ts';
import { atMost } from './loops.ts';

/** Aggregates that are written to at the same time. */
const IN_FLIGHT = 128;
const CACHE_BYTES = 64 * 1_048_576;
const STEPS = 3;
const WORKER = 'wk_bench';

/**
 * Fills the log of a Host with what its own commands and turns record: the same decisions through the same command loop,
 * codec and event store, without HTTP, models and waiting. The Host must not run turns meanwhile, for it would take over
 * those that are written here.
 */
export class Filler {
  /** Events that were recorded, and of these the ones that the history shows. */
  events = 0;
  records = 0;
  #commands = 0;
  readonly #log: LogPorts;
  readonly #tenant: string;
  readonly #deps: OpenSessionDeps;
  readonly #steps: Parameters<typeof turnStep>[0];

  private constructor(log: LogPorts, tenant: string) {
    this.#log = log;
    this.#tenant = tenant;
    const loop = new CommandLoop(systemClock, log.codec.versionOf);
    const agents = new Repository({ type: agentType, store: log.store, cacheBytes: CACHE_BYTES });
    // With snapshots, as a Host writes them.
    const sessions = new Repository({
      type: sessionType,
      store: log.store,
      snapshots: log.folds,
      cacheBytes: CACHE_BYTES,
    });
    const vaults = new Repository({ type: vaultType, store: log.store, cacheBytes: CACHE_BYTES });
    this.#deps = {
      loop,
      agents,
      sessions,
      vaults,
      isNew: () => false,
      sandboxes: noSandboxes,
    };
    const stopping = new AbortController().signal;
    this.#steps = { workerId: WORKER, loop, sessions, clock: systemClock, stopping };
  }

  static async open(options: { natsUrl: string; hostKey: KeyObject; tenantId: string }): Promise<Filler> {
    const { natsUrl: url, hostKey, tenantId } = options;
    const logger = await createLogger({ level: 'warn', pretty: false });
    const log = await openLog({
      ...{ url, name: 'filler', shards: undefined, replicas: 1, isLive: false },
      ...{ hostKey, metrics: new Metrics(), logger },
    });
    return new Filler(log, tenantId);
  }

  async close(): Promise<void> {
    await this.#log.close();
  }

  /** Opens sessions on an agent. */
  async openSessions(ids: readonly string[], agentId: string): Promise<void> {
    await atMost(IN_FLIGHT, ids, async (id) => {
      const opened = await openSession(this.#deps, {
        ...{ ref: this.#ref(id), agentId, subject: null, actsFor: null, info: {}, labels: {}, vaultIds: [] },
        ...{ bodyHash: sha256Hex(id), actor: 'application:bench', requestId: 'fill', sandbox: noSandbox },
      });
      if (opened.kind === 'rejected') throw new Error(opened.message);
      this.events++;
    });
  }

  /** Runs turns of three steps, each of which but the last calls a tool that the agent does not have, in every session. */
  async turnsIn(ids: readonly string[], each: number): Promise<void> {
    await atMost(IN_FLIGHT, ids, async (id) => {
      for (let turn = 0; turn < each; turn++) {
        await this.#message(id, 'How far is it from here to there, and back again?');
        for (let step = 1; step <= STEPS; step++) {
          const calls = step === STEPS ? [] : [{ callId: `call_${step}`, name: 'none', input: { step } }];
          await this.#answer(id, `This is what step ${step} of the turn has to say.`, calls);
        }
      }
    });
  }

  /**
   * Adds to the history of one session until it has so many records more: turns whose model calls many tools at once, and
   * which are cancelled while these wait for their executors. `agent` must have the tool.
   */
  async lengthen(id: string, tool: string, records: number, callsEach: number): Promise<void> {
    const until = this.records + records;
    const calls = Array.from({ length: callsEach }, (_, n) => ({ callId: `call_${n}`, name: tool, input: { n } }));
    while (this.records < until) {
      await this.#message(id, 'Look everywhere at once.');
      await this.#answer(id, 'I look.', calls);
      await this.#record(id, (state, context) => decideCancel(state, { ...context, reason: 'enough' }, context));
    }
  }

  async #message(id: string, content: string): Promise<void> {
    await this.#record(id, (state, context) =>
      decideMessage(state, { ...context, content }, { ...context, newTurnId: newId('tu'), tenantModel: null }),
    );
  }

  async #record(
    id: string,
    decide: (state: SessionState, context: CommandContext) => Decision<SessionEvent, CommandReply>,
  ): Promise<void> {
    const requestId = `fill-${this.#commands++}`;
    const key = receiptKey(null, requestId);
    const outcome = await this.#deps.loop.execute<SessionState, SessionEvent, CommandReply>(
      this.#deps.sessions,
      this.#ref(id),
      {
        actor: 'application:bench',
        causation: requestId,
        decide: (state) => {
          const nowMs = systemClock();
          const decision = decide(state, { requestId, subject: null, nowMs, jitter: 1, workerId: WORKER });
          if (decision.kind === 'accepted') this.#count(decision.events);
          return decision;
        },
        receipt: ({ turnId }) => ({ key, hash: sha256Hex(requestId), requestId, turnId }),
      },
    );
    if (outcome.kind === 'rejected') throw new Error(outcome.message);
  }

  async #answer(id: string, text: string, toolCalls: readonly ToolCall[]): Promise<void> {
    await turnStep(this.#steps, { ref: this.#ref(id), causation: 'fill' }, (draft, context) => {
      const turn = draft.state.status === 'open' ? draft.state.turn : null;
      const pending = Object.values(turn?.threads ?? {}).find((thread) => thread.pending !== null)?.pending;
      if (pending == null) throw new Error('the turn asks for no model call');
      const usage = { ...NO_USAGE, inputTokens: 20, outputTokens: 12, totalTokens: 32, tokensReported: true };
      settle(draft, { callId: pending.callId, outcome: { kind: 'completed', text, toolCalls, usage } }, context);
      this.#count(draft.events);
    });
  }

  #count(events: readonly SessionEvent[]): void {
    this.events += events.length;
    for (const { type } of events) if (isCanonical(type)) this.records++;
  }

  #ref(id: string): AggregateRef {
    return { tenant: this.#tenant, kind: 'session', id };
  }
}

interface CommandContext {
  readonly requestId: string;
  readonly subject: null;
  readonly nowMs: number;
  readonly jitter: number;
  readonly workerId: string;
}
