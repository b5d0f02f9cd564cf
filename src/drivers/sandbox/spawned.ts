import { spawn } from 'node:child_process';
import type { ChildProcess, SpawnOptions } from 'node:child_process';
import type { Command } from './confinement.ts';
import { SandboxUnavailableError } from './port.ts';

/**
 * A child process with its pipes. Where no descriptor is left for them, Node gives one without, and says so a moment
 * later by an error that would end the Host without a listener.
 * @throws SandboxUnavailableError
 */
export function spawned({ file, args }: Command, options: SpawnOptions): ChildProcess {
  const child = spawn(file, [...args], options);
  child.on('error', () => undefined);
  if (Array.isArray(child.stdio)) return child;
  throw new SandboxUnavailableError('a process could not be started: the Host has too many files open');
}
