import type { AggregateRef } from '../../streams/subjects.ts';

/** A place for one turn on this node's engine, held while the command that starts the turn is being recorded. */
export interface TurnPlace {
  readonly workerId: string;
  /** The claim is in the log: run the turn. */
  run(ref: AggregateRef): void;
  /** The command was refused or failed: the place is free again. */
  free(): void;
}

/** The engine of this process as the command side sees it. */
export interface TurnRunner {
  /**
   * A place for a turn of the tenant, or null when none is free for it: then the turn is left to the worker that takes
   * it from the work queue.
   */
  reserve(tenant: string): TurnPlace | null;
  /**
   * A command came across the session's turn: if it is claimed for this process, which does not run it because the
   * claim could not be confirmed, it runs from now on.
   */
  adopt(ref: AggregateRef): void;
}
