import { sql } from 'slonik';
import type { DatabasePoolConnection, FragmentSqlToken } from 'slonik';
import { escapeToken } from '../streams/subjects.ts';
import { tablesOfOthers } from './built.ts';
import { auditedIn, besideOf, holdGroup, replacedOf } from './checkpoint.ts';
import type { ProjectionGroup } from './projection.ts';
import { forLongWork } from './read-store/long-work.ts';
import { reading } from './read-store/pool.ts';
import type { ReadStore } from './read-store/pool.ts';

/**
 * Removes a tenant's rows from every read model. Its commits are gone from the log, so a rebuild gives the same; the
 * group is held meanwhile, so that no projector or swap works on the same rows. A rebuild that is under way has read some
 * of those commits and has others in hand: what it has made goes, and it fails and says so. So does an audit.
 */
export async function eraseRows(pool: ReadStore, groups: readonly ProjectionGroup[], tenant: string): Promise<void> {
  // However much a tenant has written: it takes as long as that.
  await reading(async () => {
    await forLongWork(pool, async (connection) => {
      for (const { schema, table } of await tablesOfOthers(connection, groups)) {
        await connection.transaction(async (transaction) => {
          await holdGroup(transaction, schema, 'alone');
          const whose = table === 'parked' ? parkedOf(tenant) : sql.fragment`tenant = ${tenant}`;
          await transaction.query(sql.unsafe`delete from ${sql.identifier([schema, table])} where ${whose}`);
        });
      }
      for (const group of groups) await eraseGroup(connection, group, tenant);
    });
  });
}

async function eraseGroup(connection: DatabasePoolConnection, group: ProjectionGroup, tenant: string): Promise<void> {
  await connection.transaction(async (transaction) => {
    await holdGroup(transaction, group.schema, 'alone');
    for (const table of group.tables) {
      await transaction.query(
        sql.unsafe`delete from ${sql.identifier([group.schema, table])} where tenant = ${tenant}`,
      );
    }
    // The reason why a commit was parked may quote it.
    await transaction.query(sql.unsafe`
      delete from ${sql.identifier([group.schema, 'parked'])} where ${parkedOf(tenant)}`);
    await transaction.query(sql.unsafe`drop schema if exists ${sql.identifier([besideOf(group)])} cascade`);
  });
  // What a rebuild has replaced, or an audit replayed, and left behind when it was killed.
  for (const schema of [replacedOf(group), auditedIn(group)])
    await connection.query(sql.unsafe`drop schema if exists ${sql.identifier([schema])} cascade`);
}

function parkedOf(tenant: string): FragmentSqlToken {
  return sql.fragment`split_part(subject, '.', 3) = ${escapeToken(tenant)}`;
}
