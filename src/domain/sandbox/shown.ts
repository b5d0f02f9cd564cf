import type { OpenSandbox } from './state.ts';

export const SHOWN_STATES = ['ready', 'running', 'creating', 'stopped'] as const;
export type SandboxStatus = (typeof SHOWN_STATES)[number];

/** As the wire shows it: a virtual sandbox runs while a turn has it. */
export function statusOf({ machine, holder }: Pick<OpenSandbox, 'machine' | 'holder'>): SandboxStatus {
  if (machine === null) return holder === null ? 'ready' : 'running';
  return machine.desired === 'suspended' ? 'stopped' : 'creating';
}
