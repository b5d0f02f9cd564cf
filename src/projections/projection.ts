import type { DatabaseTransactionConnection } from 'slonik';
import type { ProjectedCommit, RowSeals } from '../streams/row-seals.ts';
import type { AggregateKind } from '../streams/subjects.ts';
import type { GroupName } from './schemas.ts';

/** Where a batch is written, and with what its rows are sealed; the keys of its tenants are known there. */
export interface ProjectionTarget {
  readonly schema: string;
  readonly seals: RowSeals;
}

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
}
