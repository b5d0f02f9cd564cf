import { expect, test } from 'vitest';
import { ListRequest } from '#src/http/list-request.ts';
import { newId } from '#src/lib/ids.ts';
import { tenantQueries } from '#src/projections/tenants/queries.ts';
import type { TenantQueries } from '#src/projections/tenants/queries.ts';
import type { StoredCommit } from '#src/streams/commit.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newCommit } from '../support/commits.ts';
import { asInLog, groupOf, project, unshared } from '../support/read-side.ts';
import { useServers } from '../support/servers.ts';

const servers = useServers({ postgres: true });
const SECOND_MS = 1_000;

/** Appends the creation of a tenant. */
async function created(n: number): Promise<StoredCommit> {
  const tenant = newId('tn');
  const ref: AggregateRef = { tenant, kind: 'tenant', id: tenant };
  const digest = 'a'.repeat(64);
  const digests = { bodyHash: digest, credentialHash: digest, studioCredentialHash: digest };
  const data = { tenantId: tenant, name: `Tenant ${n}`, principalId: 'app', idempotencyKey: null, ...digests };
  const events = [{ id: newId('ev'), type: 'tenant.created', v: 1, data }];
  const commit = { ...newCommit(1), at: new Date(Date.UTC(2026, 0, 1) + n * SECOND_MS).toISOString(), events };
  const result = await servers.log.store.append(ref, 0, commit);
  if (result.kind !== 'appended') throw new Error('a conflict with nobody');
  return { ref, commit, shard: 0, position: result.position, hash: result.hash };
}

/** The names on all pages. */
async function walked(queries: TenantQueries, limit: number): Promise<string[]> {
  const names: string[] = [];
  for (let cursor: string | null | undefined; cursor !== null;) {
    const list = new ListRequest('tenants', { limit, cursor }, 2);
    const found = await queries.list({ limit: list.wanted, after: list.after });
    const { entries, nextCursor } = list.page(found, ({ createdAt, id }) => [createdAt, id]);
    names.push(...entries.map(({ name }) => name));
    cursor = nextCursor;
  }
  return names;
}

test('the list of tenants has all others while some are being erased, and ends when it has them', async () => {
  await using database = await servers.postgres.migrated();
  const pool = await database.pool();
  const { log } = servers;
  const tenants: StoredCommit[] = [];
  for (let n = 0; n < 7; n++) tenants.push(await created(n));
  const [commits, { seals }] = [await asInLog(log, tenants), log];
  await project(pool, groupOf('tenants'), { from: 0, commits, seals });
  const queries = tenantQueries({ pool, seals, reads: unshared(pool) });
  const left = new Set(tenants.map((_, n) => n));
  const isRight = async (): Promise<void> => {
    const names = [...left].toReversed().map((n) => `Tenant ${n}`);
    for (let limit = 1; limit <= tenants.length + 1; limit++) expect(await walked(queries, limit)).toEqual(names);
  };
  await isRight();
  for (const n of [5, 4, 3, 0, 6, 1, 2]) {
    await log.keyring.destroy(tenants[n]?.ref.tenant ?? '');
    left.delete(n);
    await isRight();
  }
});
