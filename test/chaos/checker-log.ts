import { readFile } from 'node:fs/promises';
import { openLog } from '#src/app/log.ts';
import type { LogPorts } from '#src/app/log.ts';
import { Metrics } from '#src/app/metrics/metrics.ts';
import { createLogger } from '#src/lib/logger.ts';
import { sealingKey } from '#src/lib/sealed-box.ts';
import type { Cluster } from '../support/cluster/cluster.ts';

/** The checker's own connection to the log, past every link. */
export async function openCheckerLog(cluster: Cluster): Promise<LogPorts> {
  const env = cluster.environment();
  const hostKey = sealingKey(Buffer.from(await readFile(env['AGENT_HOST_KEK_FILE'] ?? '', 'utf8'), 'base64'));
  return await openLog({
    ...{ url: env['NATS_URL'] ?? '', name: 'checker', shards: 1, replicas: 3, isLive: false },
    ...{ hostKey, metrics: new Metrics(), logger: await createLogger({ level: 'silent', pretty: false }) },
  });
}
