import type { Worker } from 'node:cluster';
import { EventEmitter } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { ForkedProcess } from './forked-process.ts';
import { parseToProcess } from './messages.ts';
import type { ToProcess } from './messages.ts';

/** The supervisor's end of a process that is not there. */
class Forked extends EventEmitter {
  readonly told: ToProcess[] = [];
  readonly process: { readonly pid: number | undefined; readonly kill: () => boolean };
  answers = false;

  constructor(pid: number | undefined) {
    super();
    this.process = { pid, kill: () => false };
  }

  isConnected(): boolean {
    return true;
  }

  send(message: unknown): boolean {
    const told = parseToProcess(message);
    if (told.kind === 'ask' && this.answers) this.emit('message', { kind: 'answer', id: told.id, text: 'yes' });
    else this.told.push(told);
    return true;
  }
}

function forked(pid: number | undefined): { worker: Forked; kept: ForkedProcess } {
  const worker = new Forked(pid);
  const planned = { number: 1, roles: [], isServing: true, sandboxChildren: 1, servingProcesses: 1 };
  const down = { nats: false, postgres: false };
  const start = { ...planned, natsUrl: 'nats://host', databaseUrl: 'postgres://host', down };
  // What it uses of a worker.
  const kept = new ForkedProcess(worker as unknown as Worker, { start, killMs: 60_000, shutDown: () => undefined });
  return { worker, kept };
}

const STOP = { reason: 'enough', drainMs: 0, othersServe: false };

test('one that could not be forked has ended, with the reason, and does not have to be stopped', async () => {
  const { worker, kept } = forked(undefined);
  worker.emit('error', Object.assign(new Error('spawn node EAGAIN'), { code: 'EAGAIN' }));
  worker.emit('disconnect');
  expect(await kept.started).toEqual({ failed: null });
  expect(await kept.exited).toBe('EAGAIN');
  await kept.stop(STOP);
  expect(await kept.ask('ready')).toBeNull();
});

test('a message that cannot be handed over is not the end of one that runs', async () => {
  const { worker, kept } = forked(17);
  worker.emit('error', Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }));
  worker.emit('message', { kind: 'ready', address: '127.0.0.1:1' });
  expect(await kept.started).toEqual({ address: '127.0.0.1:1' });
  worker.emit('exit', 3, null);
  expect(await kept.exited).toBe('exit code 3');
});

test('one that ends leaves no question open', async () => {
  const { worker, kept } = forked(17);
  const asked = [kept.ask('ready'), kept.ask('metrics'), kept.ask('ready')];
  worker.emit('message', { kind: 'answer', id: 1, text: 'a metric' });
  worker.emit('exit', null, 'SIGKILL');
  expect(await Promise.all(asked)).toEqual([null, 'a metric', null]);
  expect(await kept.ask('ready')).toBeNull();
  expect(worker.told.filter(({ kind }) => kind === 'ask')).toHaveLength(3);
});

test('questions that were answered leave nothing behind', async () => {
  setFlagsFromString('--expose-gc');
  const { worker, kept } = forked(17);
  worker.answers = true;
  const askMany = async (count: number): Promise<number> => {
    for (let asked = 0; asked < count; asked++) await kept.ask('ready');
    runInNewContext('gc()');
    return process.memoryUsage().heapUsed;
  };
  const before = await askMany(2_000);
  const questions = 20_000;
  expect(((await askMany(questions)) - before) / questions).toBeLessThan(50);
});
