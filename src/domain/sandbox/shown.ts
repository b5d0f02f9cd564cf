import type { Machine, OpenSandbox } from './state.ts';

export const SHOWN_STATES = ['ready', 'running', 'creating', 'stopped'] as const;
export type SandboxStatus = (typeof SHOWN_STATES)[number];

/** As the wire shows it: a virtual sandbox runs while a turn has it, a pod as its driver has found it. */
export function statusOf({ machine, holder }: Pick<OpenSandbox, 'machine' | 'holder'>): SandboxStatus {
  if (machine === null) return holder === null ? 'ready' : 'running';
  const observed = observedOf(machine);
  return observed === 'running' || observed === 'creating' ? observed : 'stopped';
}

export type ObservedPod = 'creating' | 'running' | 'suspended' | 'expired' | 'lost' | 'failed';

/** What is known of a pod's machine. */
export function observedOf({ desired, observed }: Machine): ObservedPod {
  if (desired === 'deleted') return 'expired';
  if (observed === 'lost' || observed === 'failed') return observed;
  return desired === 'suspended' ? 'suspended' : (observed ?? 'creating');
}
