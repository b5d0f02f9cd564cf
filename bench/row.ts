import type { Stage } from './stage.ts';

/** A line of the table. */
export interface Measure {
  readonly measure: string;
  readonly subject: string;
  readonly baseline: string;
  readonly ratio: string;
  readonly target: string;
  readonly met: boolean;
}

export interface RowContext {
  readonly stage: Stage;
  /** Multiplies the length of each window: 1, or less for a quick look. */
  readonly scale: number;
  readonly report: (line: string) => void;
}

/** One row of design 8, on a stage of its own. */
export type Row = (context: RowContext) => Promise<readonly Measure[]>;
