import { z } from 'zod';
import type { Stage } from './stage.ts';

export const goalSchema = z.object({
  label: z.string(),
  value: z.number(),
  target: z.number(),
  unit: z.string(),
  /** Whether the figure has to reach the target or to stay below it. */
  better: z.enum(['more', 'less']),
});

/** A figure with a target, for the chart. */
export type Goal = z.infer<typeof goalSchema>;

export const measureSchema = z.object({
  measure: z.string(),
  subject: z.string(),
  baseline: z.string(),
  ratio: z.string(),
  target: z.string(),
  met: z.boolean(),
  /** What the chart shows of it. */
  goals: z.array(goalSchema).readonly(),
});

/** A line of the table. */
export type Measure = Readonly<z.infer<typeof measureSchema>>;

export interface RowContext {
  readonly stage: Stage;
  /** Multiplies the length of each window: 1, or less for a quick look. */
  readonly scale: number;
  /** Of the long session that the console opens. */
  readonly records: number;
  readonly report: (line: string) => void;
  /** A second stage, whose servers' files stay in a directory that the command line names. Closed by the row. */
  readonly openKept: () => Promise<Stage>;
}

/** One row of design 8, on a stage of its own. */
export type Row = (context: RowContext) => Promise<readonly Measure[]>;
