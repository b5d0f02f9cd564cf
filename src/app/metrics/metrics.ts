import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { TurnOutcome } from '../../domain/session/state.ts';
import type { Usage } from '../../domain/turn/usage.ts';
import type { ExecFigures } from '../../domain/sandbox/events.ts';
import type { CalledModel } from '../../engine/model-call.ts';
import type { OnRound } from '../../lib/background-task.ts';
import type { Commit } from '../../streams/commit.ts';
import { SAMPLED } from './sampled.ts';
import type { Samples, SampledName } from './sampled.ts';

export const PREFIX = 'agent_host_';

/** Buckets for what takes milliseconds, and for what takes a provider minutes; seconds. */
const QUICK = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15];
const LONG = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];

const TURN_ENDS: ReadonlyMap<string, TurnOutcome> = new Map([
  ['turn.completed', 'completed'],
  ['turn.failed', 'failed'],
  ['turn.cancelled', 'cancelled'],
]);

/** Kinds of tokens as the ledger has them: input and output are all of them, the others break these down. */
function tokensOf(usage: Usage): Readonly<Record<string, number>> {
  const { inputTokens, outputTokens, cachedTokens, cacheWriteTokens, reasoningTokens } = usage;
  return {
    input: inputTokens,
    output: outputTokens,
    cached: cachedTokens,
    cache_write: cacheWriteTokens,
    reasoning: reasoningTokens,
  };
}

interface Definition<T extends string> {
  readonly help: string;
  readonly labelNames?: T[];
  readonly collect?: () => Promise<void>;
}

/**
 * The Host's measurements, in the form that Prometheus reads; docs/telemetry.md says what each of them means. What
 * happens on a hot path is counted where it happens, by one addition; what can be asked for is asked for when
 * Prometheus reads (`sample`). No label has more values than the code has: no ids, no names of tenants, no addresses.
 */
export class Metrics {
  readonly registry = new Registry();

  readonly requests = this.#histogram('http_request_seconds', {
    help: 'Time from request to response, by route and status.',
    labelNames: ['route', 'status'],
    buckets: QUICK,
  });
  readonly refusals = this.#counter('http_refusals_total', {
    help: 'Requests refused to be fair to others, by what was used up.',
    labelNames: ['reason'],
  });
  readonly workWaits = this.#histogram('http_work_wait_seconds', {
    help: 'Time that requests waited because others of their tenant were in work while tenants competed.',
    buckets: QUICK,
  });
  readonly appends = this.#histogram('log_append_seconds', {
    help: 'Time of an append to the log until its outcome is known, by outcome.',
    labelNames: ['outcome'],
    buckets: QUICK,
  });
  readonly appendRetries = this.#counter('log_append_retries_total', {
    help: 'Times that an append of unknown outcome was sent again.',
  });
  readonly tornReads = this.#counter('log_torn_reads_total', {
    help: 'Reads of which a part did not arrive, and that were made again.',
  });
  readonly roundTrips = this.#counter('log_round_trips_total', {
    help: 'Requests to the log and its key-value buckets, by operation.',
    labelNames: ['operation'],
  });
  readonly readWaits = this.#histogram('read_wait_seconds', {
    help: 'Time that reads of a tenant waited until its others had left them a connection.',
    buckets: QUICK,
  });
  readonly statements = this.#counter('sql_statements_total', { help: 'SQL statements sent to the read store.' });
  readonly projected = this.#gauge('projection_position', {
    help: 'How far a projection has read its stream.',
    labelNames: ['group', 'shard'],
  });
  readonly projectionPolls = this.#counter('projection_looks_total', {
    help: 'Times that a checkpoint was read because its announcement did not come in time.',
  });
  readonly parked = this.#counter('projection_parked_total', {
    help: 'Commits that could not be projected.',
    labelNames: ['group'],
  });
  readonly snapshotFailures = this.#counter('snapshot_failures_total', {
    help: 'Snapshots of folds that could not be written.',
  });
  readonly backgroundRounds = this.#counter('background_rounds_total', {
    help: 'Rounds of background tasks, by task and outcome.',
    labelNames: ['task', 'outcome'],
  });
  readonly tailLag = this.#histogram('tail_lag_seconds', {
    help: 'Age of a commit when it is written to a live reader.',
    buckets: QUICK,
  });
  readonly tailBackfills = this.#counter('tail_backfills_total', {
    help: 'Times that a reader was served from the log, by reason.',
    labelNames: ['reason'],
  });
  readonly turnsEnded = this.#counter('turns_ended_total', {
    help: 'Turns whose end this process has recorded, by outcome.',
    labelNames: ['outcome'],
  });
  readonly sandboxCalls = this.#histogram('sandbox_call_seconds', {
    help: 'Time of a call of a built-in tool, by tool and outcome.',
    labelNames: ['tool', 'outcome'],
    buckets: LONG,
  });
  readonly sandboxCpu = this.#counter('sandbox_cpu_seconds_total', {
    help: 'Processor time that calls of sandboxes took.',
  });
  readonly modelCalls = this.#histogram('model_call_seconds', {
    help: 'Time of a model call, by provider and outcome.',
    labelNames: ['provider', 'outcome'],
    buckets: LONG,
  });
  readonly modelTokens = this.#counter('model_tokens_total', {
    help: 'Tokens that providers have reported, by provider and kind.',
    labelNames: ['provider', 'kind'],
  });
  readonly modelSpend = this.#counter('model_spend_usd_total', {
    help: 'What model calls have cost, as far as their prices are known, by provider, USD.',
    labelNames: ['provider'],
  });
  readonly budgetRefusals = this.#counter('budget_refusals_total', {
    help: 'Model calls that a budget of the tenant did not let start.',
  });
  readonly objectOperations = this.#histogram('object_store_operation_seconds', {
    help: 'Time of an operation of the object store, by operation and outcome.',
    labelNames: ['operation', 'outcome'],
    buckets: QUICK,
  });

  readonly #sources = new Map<string, () => Samples | Promise<Samples>>();

  /** @param ofProcess whether the figures of the process are among them; what watches for them runs as long as it */
  constructor(ofProcess = true) {
    if (ofProcess) collectDefaultMetrics({ register: this.registry, prefix: PREFIX });
    for (const [name, { help, labelNames }] of Object.entries(SAMPLED)) this.#sampled(name, { help, labelNames });
  }

  /** Sets the source of a sampled metric; without a source, and while the source gives null, it is absent. */
  sample(name: SampledName, read: () => Samples | Promise<Samples>): void {
    this.#sources.set(name, read);
  }

  /** A round of a background task is over. */
  readonly onRound: OnRound = (task, outcome) => this.backgroundRounds.inc({ task, outcome });

  /** A model call is over. */
  called({ provider, outcome, ms, usage }: CalledModel): void {
    this.modelCalls.observe({ provider, outcome }, ms / 1000);
    if (usage.costKnown) this.modelSpend.inc({ provider }, usage.costUsd);
    if (!usage.tokensReported) return;
    for (const [kind, count] of Object.entries(tokensOf(usage))) this.modelTokens.inc({ provider, kind }, count);
  }

  executed({ tool, outcome, durationMs, cpuMs }: ExecFigures): void {
    this.sandboxCalls.observe({ tool, outcome }, durationMs / 1000);
    this.sandboxCpu.inc(cpuMs / 1000);
  }

  /** This process has appended a commit of a session. */
  recorded({ events }: Commit): void {
    for (const { type } of events) {
      const outcome = TURN_ENDS.get(type);
      if (outcome !== undefined) this.turnsEnded.inc({ outcome });
    }
  }

  #sampled(
    name: string,
    { help, labelNames }: { readonly help: string; readonly labelNames: readonly string[] },
  ): void {
    const collect = async (): Promise<void> => {
      const read = (await this.#sources.get(name)?.()) ?? [];
      metric.reset();
      // A metric without labels would now be 0, which is a claim.
      if (labelNames.length === 0) metric.remove();
      for (const { labels = {}, value } of typeof read === 'number' ? [{ value: read }] : read)
        metric.inc(labels, value);
    };
    const definition = { help, labelNames: [...labelNames], collect };
    const metric = name.endsWith('_total') ? this.#counter(name, definition) : this.#gauge(name, definition);
  }

  #histogram<T extends string = string>(name: string, definition: Definition<T> & { readonly buckets: number[] }) {
    return new Histogram<T>({ name: PREFIX + name, registers: [this.registry], ...definition });
  }

  #counter<T extends string = string>(name: string, definition: Definition<T>) {
    return new Counter<T>({ name: PREFIX + name, registers: [this.registry], ...definition });
  }

  #gauge<T extends string = string>(name: string, definition: Definition<T>) {
    return new Gauge<T>({ name: PREFIX + name, registers: [this.registry], ...definition });
  }
}
