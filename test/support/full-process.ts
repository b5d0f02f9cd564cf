import { openSync } from 'node:fs';
import { SandboxChild } from '#src/drivers/sandbox/child-process.ts';
import { PodProcess } from '#src/drivers/sandbox/pod/process.ts';
import { delay } from '#src/lib/backoff.ts';

/** Run as a process of its own with few descriptors: uses them all, then starts commands. */
const SHELL = { file: '/bin/sh', args: ['-c', 'true'] };
const lines: string[] = [];

function noted(name: string, start: () => unknown): void {
  try {
    start();
    lines.push(`${name} started`);
  } catch (error) {
    lines.push(`${name} ${error instanceof Error ? error.constructor.name : 'threw'}`);
  }
}

try {
  for (;;) openSync('/dev/null', 'r');
} catch {
  // None is left.
}
noted('child', () => new SandboxChild(SHELL));
noted('pod', () => new PodProcess({ command: { ...SHELL, options: '' }, filter: Buffer.alloc(0), uid: null }));
// Longer than an error of a process that did not start takes to arrive.
await delay(100);
process.stdout.write(`${lines.join('\n')}\nalive\n`);
