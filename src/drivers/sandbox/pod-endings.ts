import { CALL_SECONDS } from '../../domain/sandbox/tools.ts';
import type { SandboxFailure, SandboxToolCall } from '../../domain/sandbox/tools.ts';
import type { PodCall } from './port.ts';

export interface BashCall extends PodCall {
  readonly tool: Extract<SandboxToolCall, { name: 'bash' }>;
}

/** Why the Host ended a command of its own accord. */
export type PodEnding = 'timeout' | 'output' | 'memory' | 'storage';

/** How a command that was ended is answered. */
export function ended(ending: PodEnding, { limits, tool }: BashCall) {
  const stays = 'what it had written until then is there';
  const seconds = tool.input.timeoutSeconds ?? CALL_SECONDS;
  const words: Readonly<Record<PodEnding, readonly ['failed' | 'timeout' | 'killed', SandboxFailure, string]>> = {
    timeout: [
      'timeout',
      'timeout',
      `the command took longer than ${seconds} s and was ended; ${stays}. Give it more time or less to do`,
    ],
    memory: [
      'killed',
      'out_of_memory',
      `the command needed more than ${limits.memoryBytes} bytes of memory and was ended; ${stays}`,
    ],
    storage: [
      'killed',
      'limit_exceeded',
      `the volume holds ${limits.storageBytes} bytes at most, so the command was ended; ${stays}. Remove something`,
    ],
    output: [
      'killed',
      'limit_exceeded',
      `the command wrote without end and was ended; ${stays}. Send its output to a file`,
    ],
  };
  const [outcome, code, message] = words[ending];
  return { outcome, code, message };
}
