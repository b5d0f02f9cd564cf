import { readdirSync } from 'node:fs';
import { commandLine } from '#src/lib/process-identity.ts';

/** Every process of this machine, with its arguments. Only where there is /proc. */
export function allProcesses(): { readonly pid: number; readonly line: string }[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((name) => ({ pid: Number(name), line: commandLine(Number(name)) }));
}
