import { sql } from 'slonik';
import { z } from 'zod';
import type { AggregateKind, AggregateRef } from '../streams/subjects.ts';
import { reading } from './read-store/pool.ts';
import type { ReadStore } from './read-store/pool.ts';
import { SCHEMAS } from './schemas.ts';

/** Tables with one row for each aggregate. */
const TABLES: readonly { readonly kind: AggregateKind; readonly name: readonly [schema: string, table: string] }[] = [
  { kind: 'tenant', name: [SCHEMAS.tenants, 'tenant'] },
  { kind: 'agent', name: [SCHEMAS.agents, 'agent'] },
  { kind: 'session', name: [SCHEMAS.sessions, 'session'] },
  { kind: 'artifact', name: [SCHEMAS.artifacts, 'artifact'] },
  { kind: 'vault', name: [SCHEMAS.vaults, 'vault'] },
  { kind: 'quota', name: [SCHEMAS.artifacts, 'account'] },
];
const PAGE = 1_000;
const row = z.object({ tenant: z.string(), id: z.string(), applied: z.int() });

/** That a read model has seen a commit of an aggregate at a position. */
export interface RecordedPosition {
  readonly ref: AggregateRef;
  readonly position: number;
}

/**
 * The newest commit that the read models have seen of each aggregate that has a row, a page at a time.
 * @throws UnavailableError (database)
 */
export async function* recordedPositions(pool: ReadStore): AsyncGenerator<readonly RecordedPosition[]> {
  for (const { kind, name } of TABLES) {
    for (let [tenant, id, more] = ['', '', true]; more;) {
      const rows = await reading(
        async () =>
          await pool.any(sql.type(row)`
            select tenant, id, applied from ${sql.identifier([...name])}
            where (tenant, id) > (${tenant}, ${id}) order by tenant, id limit ${PAGE}`),
      );
      yield rows.map(({ applied, ...of }) => ({ ref: { ...of, kind }, position: applied }));
      [tenant, id, more] = [rows.at(-1)?.tenant ?? '', rows.at(-1)?.id ?? '', rows.length === PAGE];
    }
  }
}
