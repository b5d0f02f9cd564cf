import type { SandboxStatus } from '../../sandbox/shown.ts';
import type { Running } from '../running.ts';
import type { Step } from './step.ts';

/**
 * Before the session's own agent completes the turn, a worker exports what its sandbox has in `outputs`: a client that
 * reads of the end finds the artifact.
 */
export function exportOutputs(at: Running): Step {
  const { agent, outputs } = at.thread;
  if (agent !== null || at.session.sandbox === undefined || outputs === 'exported') return 'next';
  at.add({ type: 'outputs.requested', data: { turnId: at.turnId } });
  return 'waits';
}

/** What became of the `outputs` of a sandbox. */
export interface OutputsEnd {
  readonly turnId: string;
  /** Of the folder artifact; 0: there is none. */
  readonly version: number;
  /** Why there is no new version although there should be, for people; null: nothing is wrong. */
  readonly refused: { readonly sandboxId: string; readonly state: SandboxStatus; readonly reason: string } | null;
}

/** Records the export, unless the turn no longer waits for it. Returns whether it was recorded. */
export function settleOutputs(at: Running, { turnId, version, refused }: OutputsEnd): boolean {
  if (at.turnId !== turnId || at.thread.outputs !== 'requested') return false;
  if (refused !== null) at.add({ type: 'sandbox.state', data: { turnId, ...refused } });
  at.add({ type: 'outputs.exported', data: { turnId, version } });
  return true;
}
