import type { Client } from 'pg';
import { PROJECTIONS } from '#src/app/projectors.ts';
import { withConnection } from '#src/projections/read-store/connection.ts';
import type { TenantClient } from './client.ts';
import type { Host } from './host.ts';
import { until } from './wait-until.ts';

/** Runs statements on a Host's database, in one connection. */
export async function withDatabase<T>(host: Host, work: (client: Client) => Promise<T>): Promise<T> {
  return await withConnection(await host.file('database-url'), work);
}

/** Every row of every read model as text, in a fixed order: what two databases must have in common to be equal. */
export async function dumpReadModels(host: Host): Promise<Record<string, string[]>> {
  return await withDatabase(host, async (client) => {
    const dump: Record<string, string[]> = {};
    for (const { schema, tables } of PROJECTIONS) {
      for (const table of [...tables, 'parked']) {
        const { rows } = await client.query<{ row: string }>(
          `select t::text as row from ${schema}.${table} t order by 1`,
        );
        dump[`${schema}.${table}`] = rows.map(({ row }) => row);
      }
    }
    return dump;
  });
}

/** Longer than it takes to make them from any log of a test. */
const BUILT_MS = 180_000;

/**
 * Waits until a node has its read models, as an orchestrator does: pages are refused while they are made from the log, after a
 * restore or on another database.
 */
export async function builtReadModels({ metricsUrl }: Host): Promise<void> {
  const isReady = async (): Promise<boolean> => (await fetch(metricsUrl.replace(/metrics$/, 'ready'))).ok;
  await until('the read models are built', isReady, BUILT_MS);
}

/** Waits until the read models hold everything that the log holds of a session: its ledger is answered only then. */
export async function settledReadModels(tenant: TenantClient, sessionId: string): Promise<void> {
  await until('the projections have caught up', async () => {
    const answer = await tenant.request({ path: `/v1/sessions/${encodeURIComponent(sessionId)}/calls/model` });
    return answer.status === 200;
  });
}
