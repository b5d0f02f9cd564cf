import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { CALL_SECONDS } from '../../../domain/sandbox/tools.ts';
import { boundedOutput } from '../output.ts';
import { ended } from '../pod-endings.ts';
import type { BashCall } from '../pod-endings.ts';
import { SandboxUnavailableError } from '../port.ts';
import type { PodNetwork, SandboxAnswer, SandboxUsage } from '../port.ts';
import type { Cgroup } from './cgroups.ts';
import { EXIT_FENCED, podCommand } from './command.ts';
import type { Ground } from './ground.ts';
import { PodProcess } from './process.ts';
import type { PodEnd } from './process.ts';
import { openProxy } from './proxy.ts';
import type { PodProxy } from './proxy.ts';
import type { Volume } from './volumes.ts';
import { PodWatch } from './watch.ts';

export interface ScriptOptions {
  readonly call: BashCall;
  readonly volume: Volume;
  readonly ground: Ground;
  /** Bytes of the volume before the command, and how to count them. */
  readonly usedBytes: number;
  readonly count: () => Promise<number>;
  readonly bridge: { readonly node: string; readonly program: string };
  /** A directory for sockets; the names of sockets are short. */
  readonly sockets: () => Promise<string>;
  readonly queuedMs: number;
}

/** Processes and threads of a command at a time. */
const PROCESSES = 512;

/** Runs a command in a pod. @throws the signal's reason, once the command is ended; SandboxUnavailableError */
export async function runScript(options: ScriptOptions, signal: AbortSignal): Promise<SandboxAnswer> {
  const { call, ground, sockets } = options;
  const { cpus, memoryBytes } = call.limits;
  const cgroup = (await ground.cgroups?.create({ cpus, memoryBytes, processes: PROCESSES })) ?? null;
  try {
    const proxy = call.network === null ? null : await proxyOf(call.network, await sockets());
    try {
      return await runConfined(options, { cgroup, proxy }, signal);
    } finally {
      await proxy?.close();
    }
  } finally {
    await cgroup?.remove();
  }
}

async function proxyOf(network: PodNetwork, directory: string): Promise<PodProxy> {
  try {
    return await openProxy(join(directory, randomUUID().slice(0, 8)), network);
  } catch (cause) {
    throw new SandboxUnavailableError('the network of a pod could not be opened', { cause });
  }
}

interface Means {
  readonly cgroup: Cgroup | null;
  readonly proxy: PodProxy | null;
}

async function runConfined(
  { call, volume, ground, usedBytes, count, bridge, queuedMs }: ScriptOptions,
  { cgroup, proxy }: Means,
  signal: AbortSignal,
): Promise<SandboxAnswer> {
  signal.throwIfAborted();
  const { limits, fence, tool } = call;
  const { memoryBytes, storageBytes } = limits;
  const { workspace, lock, uid } = volume;
  const command = podCommand({
    ...{ programs: ground.programs, script: tool.input.command, workspace, uid, lock, fence },
    ...{ joins: cgroup?.joins ?? [], memoryBytes, isMemoryBounded: cgroup !== null, storageBytes },
    ...{ processes: PROCESSES, bridge: proxy === null ? null : { ...bridge, socket: proxy.socket } },
  });
  const startedMs = performance.now();
  const process = new PodProcess({ command, filter: ground.filter, uid });
  const memoryBytesMax = cgroup === null ? memoryBytes : null;
  const watch = new PodWatch({ process, memoryBytesMax, storageBytesMax: storageBytes, usedBytes, count });
  const timer = setTimeout(() => process.end('timeout'), (tool.input.timeoutSeconds ?? CALL_SECONDS) * 1000);
  const onAbort = () => process.end('aborted');
  signal.addEventListener('abort', onAbort, { once: true });
  let end: PodEnd;
  try {
    if (signal.aborted) onAbort();
    end = await process.wait();
  } finally {
    watch.stop();
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
  signal.throwIfAborted();
  const cpuMs = cgroup === null ? Math.round(watch.cpuMs) : await cgroup.cpuMs();
  const isOut = cgroup !== null && end.exitCode !== 0 && (await cgroup.outOfMemory()) > 0;
  const durationMs = Math.round(performance.now() - startedMs);
  const bytesWritten = Math.max(0, (await count().catch(() => usedBytes)) - usedBytes);
  const usage = { durationMs, queuedMs, cpuMs, bytesWritten };
  return answerOf({ ...end, ending: isOut ? 'memory' : end.ending }, usage, call);
}

function answerOf(end: PodEnd, usage: SandboxUsage, call: BashCall): SandboxAnswer {
  const { exitCode, ran, ending } = end;
  if (ending !== null && ending !== 'aborted') return { ...ended(ending, call), usage };
  if (!ran && exitCode === EXIT_FENCED)
    return { outcome: 'failed', code: 'sandbox_lost', message: 'another turn has the sandbox', usage };
  if (ran && (exitCode === null || end.isOutputLost)) {
    const message =
      exitCode === null
        ? 'the command was ended from outside; what it had written until then is there'
        : 'the command has ended, and its output was lost; the files that it has written are there';
    return { outcome: 'killed', code: 'sandbox_lost', message, usage };
  }
  if (!ran || exitCode === null)
    throw new SandboxUnavailableError(
      `a pod could not be started: ${end.stderr.trim().slice(-500) || 'it ended at once'}`,
    );
  const { stdout, stderr, truncated } = boundedOutput(end.stdout, end.stderr);
  const result = { stdout, stderr, exitCode, ...(truncated || end.isCut ? { truncated: true as const } : {}) };
  return { outcome: 'completed', result, files: null, usage };
}
