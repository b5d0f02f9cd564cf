import { setImmediate } from 'node:timers/promises';

/** Of this thread, where this Node can tell (from 24 on). */
const used = (before?: NodeJS.CpuUsage): NodeJS.CpuUsage =>
  Reflect.has(process, 'threadCpuUsage') ? process.threadCpuUsage(before) : process.cpuUsage(before);

/**
 * How much work a whole turn of the event loop has, ms of processor time: all that is ready has its turn in it, and
 * nothing is waited for. What other processes take of the processors is not in it.
 */
export async function loopTurnMs(): Promise<number> {
  await setImmediate();
  const before = used();
  await setImmediate();
  const { user, system } = used(before);
  return (user + system) / 1_000;
}
