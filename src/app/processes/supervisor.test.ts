import { expect, test } from 'vitest';
import type { ServersDown } from '../../embedded/servers.ts';
import { createLogger } from '../../lib/logger.ts';
import { StartError } from '../../lib/start-error.ts';
import type { KeptProcess, Started } from './forked-process.ts';
import { planOf } from './plan.ts';
import { Supervisor } from './supervisor.ts';

const logger = await createLogger({ level: 'silent', pretty: false });

/** A process that does what the test says. */
class Played implements KeptProcess {
  readonly #started = Promise.withResolvers<Started>();
  readonly #exited = Promise.withResolvers<string>();
  readonly started = this.#started.promise;
  readonly exited = this.#exited.promise;
  readonly heard: ServersDown[] = [];

  up(address: string | null): this {
    this.#started.resolve({ address });
    return this;
  }

  end(failed: StartError | null = null): this {
    this.#started.resolve({ failed });
    this.#exited.resolve('SIGKILL');
    return this;
  }

  async stop(): Promise<void> {
    this.end();
    await this.exited;
  }

  tellServers(down: ServersDown): void {
    this.heard.push(down);
  }

  async ask(): Promise<string> {
    return await Promise.resolve('yes');
  }
}

function supervised(fork: (number: number, start: number) => Played, count = 2) {
  const starts: number[] = [];
  const failures: StartError[] = [];
  const supervisor = new Supervisor({
    ...{ plan: planOf(count, ['commands', 'projector']), drainMs: 0, logger, pause: { baseMs: 0, capMs: 0 } },
    fork: ({ number }) => {
      starts.push(number);
      return fork(number, starts.filter((one) => one === number).length);
    },
    onFailed: (reason) => failures.push(reason),
  });
  return { supervisor, starts, failures };
}

test('the projector is ready before the others are started', async () => {
  const { supervisor, starts } = supervised(() => new Played().up('127.0.0.1:1'), 3);
  expect(await supervisor.start()).toBe('127.0.0.1:1');
  expect(starts).toEqual([3, 1, 2]);
  expect(await supervisor.isReady()).toBe(true);
  await supervisor.stop('enough');
  expect(await supervisor.isReady()).toBe(false);
});

test('one that dies is started again, and what an operator can mend is tried again then', async () => {
  const played: Played[] = [];
  const back = Promise.withResolvers<void>();
  const { supervisor, starts, failures } = supervised((number, start) => {
    const one = new Played();
    if (number !== 1 || start === 1) played.push(one.up('127.0.0.1:1'));
    else if (start < 5) one.end(new StartError('NATS cannot be reached'));
    else {
      one.up('127.0.0.1:1');
      back.resolve();
    }
    return one;
  });
  await supervisor.start();
  played.at(-1)?.end();
  await back.promise;
  expect(starts).toEqual([2, 1, 1, 1, 1, 1]);
  expect(failures).toEqual([]);
  expect(supervisor.replaced).toBe(4);
  await supervisor.stop('enough');
});

test('a first start that an operator can mend ends at once with the reason', async () => {
  const reason = new StartError('port 7070 is in use');
  const { supervisor, starts, failures } = supervised(() => new Played().end(reason));
  await expect(supervisor.start()).rejects.toBe(reason);
  expect([starts, failures]).toEqual([[2], [reason]]);
});

test('one that dies again and again before it is ready ends the Host', async () => {
  const { supervisor, starts, failures } = supervised(() => new Played().end());
  await expect(supervisor.start()).rejects.toThrow('process 2 has ended 10 times before it was ready');
  expect(starts).toHaveLength(10);
  expect(failures).toHaveLength(1);
});

test('a restart takes one after the other', async () => {
  const { supervisor, starts } = supervised(() => new Played().up('127.0.0.1:1'), 3);
  await supervisor.start();
  await supervisor.restart();
  expect(starts).toEqual([3, 1, 2, 1, 2, 3]);
  expect(supervisor.replaced).toBe(0);
  await supervisor.stop('enough');
});

test('a restart waits for a replacement that cannot start at once', async () => {
  const { supervisor, starts, failures } = supervised((number, start) => {
    const isAway = number === 1 && start > 1 && start < 5;
    return isAway ? new Played().end(new StartError('NATS cannot be reached')) : new Played().up('127.0.0.1:1');
  });
  await supervisor.start();
  await supervisor.restart();
  expect(starts).toEqual([2, 1, 1, 1, 1, 1, 2]);
  expect([failures, supervisor.replaced]).toEqual([[], 3]);
  await supervisor.stop('enough');
});

test('a replacement that fails ten times in a row ends the restart, and the Host', async () => {
  const reason = new StartError('NATS cannot be reached');
  const { supervisor, starts, failures } = supervised((number, start) => {
    const isAway = number === 1 && start > 1;
    return isAway ? new Played().end(reason) : new Played().up('127.0.0.1:1');
  });
  await supervisor.start();
  await expect(supervisor.restart()).rejects.toBe(reason);
  expect(starts).toEqual([2, ...Array.from({ length: 11 }, () => 1)]);
  expect(failures).toEqual([reason]);
  await supervisor.stop('enough');
});

test('what failed before a process was ready does not count after a restart', async () => {
  const { supervisor, failures } = supervised((number, start) => {
    const isAway = number === 1 && ((start > 1 && start < 8) || (start > 8 && start < 15));
    return isAway ? new Played().end() : new Played().up('127.0.0.1:1');
  });
  await supervisor.start();
  await supervisor.restart();
  await supervisor.restart();
  expect([failures, supervisor.replaced]).toEqual([[], 12]);
  await supervisor.stop('enough');
});

test('one that cannot be forked is tried again', async () => {
  const { supervisor, starts, failures } = supervised((number, start) => {
    if (number === 1 && start === 1) throw new Error('spawn ENOMEM');
    return new Played().up('127.0.0.1:1');
  });
  await supervisor.start();
  expect(starts).toEqual([2, 1, 1]);
  expect([failures, supervisor.replaced]).toEqual([[], 1]);
  await supervisor.stop('enough');
});

test('each process hears which embedded servers have ended', async () => {
  const made: Played[] = [];
  const { supervisor } = supervised(() => {
    const played = new Played().up('127.0.0.1:1');
    made.push(played);
    return played;
  });
  await supervisor.start();
  const down = { nats: false, postgres: true };
  supervisor.tellServers(down);
  expect(made.map(({ heard }) => heard)).toEqual([[down], [down]]);
  await supervisor.stop('enough');
});
