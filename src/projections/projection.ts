import type { DatabasePoolConnection, DatabaseTransactionConnection } from 'slonik';
import type { ProjectedCommit, RowSeals } from '../streams/row-seals.ts';
import type { AggregateKind, AggregateRef } from '../streams/subjects.ts';
import type { GroupName } from './schemas.ts';

/** Where a batch is written, and with what its rows are sealed; the keys of its tenants are known there. */
export interface ProjectionTarget {
  readonly schema: string;
  readonly seals: RowSeals;
  /** Called when applying leaves work for `deferred`. */
  readonly onDeferred?: () => void;
}

/** Work that a group puts off, so that no transaction takes long: it is done in steps, between batches. */
export interface DeferredWork {
  /**
   * Some ten milliseconds of it; false: nothing is left.
   * @param position where the checkpoint is
   * @throws FencedError when it is elsewhere
   */
  step(connection: WriteConnection, position: number): Promise<boolean>;
}

/** Inside a transaction, a batch is a savepoint. */
export type WriteConnection = DatabasePoolConnection | DatabaseTransactionConnection;

/** A group of read models that share a checkpoint: one schema, fed from one or several kinds of aggregates. */
export interface ProjectionGroup {
  /** For people, and for the configuration. */
  readonly name: GroupName;
  /** The schema of its rows (schemas.ts). */
  readonly schema: string;
  readonly kinds: readonly AggregateKind[];
  /** Tables that a rebuild makes again; an audit compares them row for row. */
  readonly tables: readonly string[];
  /** The tables in which an aggregate of a kind has rows, with the column that names it beside `tenant`. */
  readonly rowsOf: Readonly<Partial<Record<AggregateKind, readonly (readonly [table: string, column: string])[]>>>;
  /**
   * Applies commits in their order, in a constant number of statements. Applying the same commits again must leave the
   * same rows.
   */
  readonly apply: (
    transaction: DatabaseTransactionConnection,
    target: ProjectionTarget,
    commits: readonly ProjectedCommit[],
  ) => Promise<void>;
  /**
   * Takes what the rows of an aggregate add to sums and counts out of them, before the rows are removed to be made again;
   * absent: nothing is summed.
   */
  readonly uncount?: (
    transaction: DatabaseTransactionConnection,
    target: { readonly schema: string; readonly shard: number },
    ref: AggregateRef,
  ) => Promise<void>;
  /**
   * Who reads its rows waits for those that they need and says so, so that commits may gather with little load, too;
   * absent: its rows are read as they are, also right after an event has been seen.
   */
  readonly isAskedFor?: boolean;
  /** What applying has put off; absent: it never does. Its own table is in `deferredIn`. */
  readonly deferred?: (schema: string, shard: number) => DeferredWork;
  /** The table that says what is put off: as `parked`, it is of the schema and not compared. Tenant first in its key. */
  readonly deferredIn?: string;
}
