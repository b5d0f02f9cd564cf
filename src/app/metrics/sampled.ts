/** One value of a metric. */
export interface Sample {
  readonly labels?: Readonly<Record<string, string>>;
  readonly value: number;
}

/** All values of a metric at a moment, a number being one without labels; null: they are not known. */
export type Samples = number | readonly Sample[] | null;

interface SampledMetric {
  readonly help: string;
  readonly labelNames: readonly string[];
}

const plain = (help: string): SampledMetric => ({ help, labelNames: [] });

/**
 * Metrics that are asked for when Prometheus reads. The end of a name says what it is: `_total` is a counter,
 * everything else a gauge.
 */
export const SAMPLED = {
  event_streams_open: plain('Open event streams of this process.'),
  event_streams_held_bytes: plain('Bytes that wait in this process for the readers of event streams.'),
  executors_connected: plain('Executors with a discovery stream at this process.'),
  uploads_active: plain('Uploads that this process is taking.'),
  turns_active: plain('Turns that this process runs.'),
  turns_unattended: plain('Open turns that were offered again and again, and that no worker has taken.'),
  cache_entries: { help: 'Folded aggregates in the cache, by kind.', labelNames: ['cache'] },
  cache_bytes: { help: 'Estimated size of the cached folds, by kind.', labelNames: ['cache'] },
  cache_lookups_total: { help: 'Loads of a fold, by kind and whether it was cached.', labelNames: ['cache', 'result'] },
  trace_spans_total: { help: 'Spans of turns, by what has become of them.', labelNames: ['outcome'] },
  log_connected: plain('1 while the connection of the appends is up, 0 while it is down.'),
  embedded_server_up: { help: '1 while an embedded server runs, 0 while it does not.', labelNames: ['server'] },
  embedded_server_restarts_total: {
    help: 'Times that an embedded server was started again after it had ended by itself.',
    labelNames: ['server'],
  },
  processes_replaced_total: plain('Times that a process of this Host was started again after it had ended by itself.'),
  heap_allocated_bytes_total: plain('Bytes that this process has allocated on its heap since it started.'),
  data_disk_free_bytes: plain('Free bytes of the disk that holds the data directory.'),
  data_disk_size_bytes: plain('Size of the disk that holds the data directory.'),
  dependency_up: { help: '1 when a dependency answers, 0 when it does not.', labelNames: ['dependency'] },
  work_queue_depth: plain('Sessions in the work queue, those that a worker is checking included.'),
  turns: { help: 'Open turns of the installation, by state.', labelNames: ['state'] },
  turns_stuck: plain('Running turns that no worker runs, or of which nothing has been heard for too long.'),
  actions_pending: plain('Actions of the installation that wait for an executor.'),
  oldest_pending_action_seconds: plain('Age of the oldest action that waits for an executor; 0 when none does.'),
  interactions_open: plain('Questions and approvals of the installation that wait for a person.'),
  oldest_open_interaction_seconds: plain('Age of the oldest one that waits for a person; 0 when none does.'),
  projection_lag_commits: { help: 'Commits that a projection is behind, at most.', labelNames: ['group', 'shard'] },
  projection_lag_seconds: { help: 'Age of the oldest commit not projected yet.', labelNames: ['group', 'shard'] },
  log_shard_bytes: { help: 'Bytes of a stream of the log, in one copy.', labelNames: ['shard'] },
  log_shard_commits: { help: 'Commits in a stream of the log.', labelNames: ['shard'] },
  log_shard_subjects: { help: 'Aggregates with commits in a stream of the log.', labelNames: ['shard'] },
  read_store_bytes: { help: 'Bytes of a schema of the read store, indexes included.', labelNames: ['schema'] },
  read_store_rows: { help: 'Rows of a schema of the read store, as its statistics have them.', labelNames: ['schema'] },
  projection_parked_commits: { help: 'Commits that are parked: the read models lack them.', labelNames: ['group'] },
} as const satisfies Readonly<Record<string, SampledMetric>>;

export type SampledName = keyof typeof SAMPLED;
