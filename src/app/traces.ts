import { spansOf } from '../domain/session/spans.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { SessionState } from '../domain/session/state.ts';
import type { Logger } from '../lib/logger.ts';
import { eventsOf } from '../streams/commit.ts';
import type { StoredCommit } from '../streams/commit.ts';
import type { Config } from './config.ts';
import type { Metrics } from './metrics/metrics.ts';
import type { Stack } from '../lib/stack.ts';

/** Called with each commit of a session that this process has appended, and of the fold before it. */
export type Recorded = (before: SessionState, stored: StoredCommit) => void;

export interface TracesOptions {
  readonly config: Config;
  /** What the service says of itself unless the operator set it. */
  readonly service: Readonly<Record<string, string>>;
  readonly metrics: Metrics;
  readonly logger: Logger;
  readonly stack: Stack;
}

/**
 * Spans of turns, made from the commits that this process appends. Each commit is appended by one process, so each span
 * is exported once, by the process that closed it, wherever it began. Off unless an exporter is configured; none of it
 * is loaded then.
 */
export async function openTraces({ config, service, metrics, logger, stack }: TracesOptions): Promise<Recorded | null> {
  if (config.traces === null) return null;
  const { OtlpSpans } = await import('../drivers/spans/otlp.ts');
  const exporter = new OtlpSpans({ resource: { ...service, ...config.traces }, logger });
  stack.defer('traces', async () => await exporter.close());
  metrics.sample('trace_spans_total', () =>
    Object.entries(exporter.counts).map(([outcome, value]) => ({ labels: { outcome }, value })),
  );
  return (before, { ref, position, commit }) => {
    try {
      const spans = spansOf(before, eventsOf<SessionEvent>(commit), { at: commit.at, position });
      if (spans.length > 0) exporter.export({ tenantId: ref.tenant, sessionId: ref.id }, spans);
    } catch (error) {
      // The command has been recorded: what is wrong with its trace is not a reason to answer otherwise.
      logger.error({ err: error, session: ref.id, tenant: ref.tenant }, 'a commit could not be traced');
    }
  };
}
