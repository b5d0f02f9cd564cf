import { optional } from '../kernel/optional.ts';
import type { ExecFigures, SandboxEvent } from './events.ts';

/** An event as the history of a sandbox shows it. */
export interface CanonicalSandboxEvent {
  readonly type: 'sandbox.state' | 'sandbox.exec';
  readonly turnId: string | null;
  readonly payload: Readonly<Record<string, unknown>>;
}

/** The allow-list: what is not named here never leaves the Host. */
export function toCanonicalSandbox(event: SandboxEvent, sandboxId: string): CanonicalSandboxEvent | null {
  const state = (now: string, reason?: string, turnId: string | null = null): CanonicalSandboxEvent => ({
    type: 'sandbox.state',
    turnId,
    payload: { sandboxId, state: now, ...optional({ reason }) },
  });
  switch (event.type) {
    case 'sandbox.created':
      return state(event.data.kind === 'pod' ? 'creating' : 'ready', 'created');
    case 'sandbox.held':
      return state('running', undefined, event.data.turnId);
    case 'sandbox.released':
      return state('ready');
    case 'sandbox.reset':
      return state('ready', 'reset');
    case 'sandbox.stopped':
      return state('stopped');
    case 'sandbox.started':
      return state('creating');
    case 'sandbox.observed': {
      const { observed, reason } = event.data;
      return observed === 'running' ? state('running') : state('stopped', reason ?? observed);
    }
    case 'sandbox.expired':
      return state('stopped', 'expired');
    case 'sandbox.deleted':
      return state('stopped', 'deleted');
    case 'sandbox.executed':
      return {
        type: 'sandbox.exec',
        turnId: event.data.turnId,
        payload: { sandboxId, ...execPayload(event.data.exec) },
      };
    default:
      return null;
  }
}

/** What `sandbox.exec` shows of a call, member by member. */
export function execPayload(exec: ExecFigures): Readonly<Record<string, unknown>> {
  const { tool, command, path, exitCode, durationMs, cpuMs, bytesWritten, outcome } = exec;
  return optional({ tool, command, path, exitCode, durationMs, cpuMs, bytesWritten, outcome });
}
