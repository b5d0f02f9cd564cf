import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { withDescendants } from '#src/drivers/sandbox/child-process.ts';
import { SandboxUnavailableError } from '#src/drivers/sandbox/port.ts';
import { hostileSuite } from '../conformance/sandbox-hostile.ts';
import { confinements, ENDLESS_SCRIPT, TestSandbox, virtualSandboxes } from '../support/sandboxes.ts';
import { until } from '../support/wait-until.ts';

const WAIT_MS = 45_000;

/** Whether a process is there and is no zombie. */
function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3) !== 'Z';
  } catch {
    return false;
  }
}

const below = (pid: number) => withDescendants(pid).slice(1);

/** The processes that run commands: Node, with the program of a child. */
function commandProcesses(pid: number): number[] {
  return below(pid).filter((each) => {
    try {
      const [program = '', ...rest] = readFileSync(`/proc/${each}/cmdline`, 'utf8').split('\0');
      return program.endsWith('node') && rest.includes('--permission');
    } catch {
      return false;
    }
  });
}

describe.each(confinements())('children, bubblewrap %s', (bubblewrap) => {
  test('end with a Host that is killed, also while they are in a loop', async () => {
    const owner = spawn(
      process.execPath,
      [new URL('../support/sandbox-owner.ts', import.meta.url).pathname, bubblewrap],
      {
        stdio: ['ignore', 'pipe', 'inherit'],
      },
    );
    try {
      await once(owner.stdout, 'data');
      const pids = below(owner.pid ?? 0);
      expect(commandProcesses(owner.pid ?? 0).length).toBeGreaterThan(0);
      owner.kill('SIGKILL');
      await once(owner, 'exit');
      await until('all processes below the owner have ended', () => !pids.some(isAlive), WAIT_MS);
      expect(pids.filter(isAlive)).toEqual([]);
    } finally {
      owner.kill('SIGKILL');
    }
  });

  test('a call whose process is killed is made again, and has the files from before', async () => {
    const driver = virtualSandboxes({ bubblewrap });
    try {
      const box = new TestSandbox(driver);
      await box.bash('echo before > f');
      const call = box.bash('cat f; echo during > f; sleep 1; cat f');
      await until('the call runs', () => driver.status().busy === 1, WAIT_MS);
      for (const pid of commandProcesses(process.pid)) process.kill(pid, 'SIGKILL');
      expect(await call).toMatchObject({ outcome: 'completed', result: { stdout: 'before\nduring\n' } });
      expect(box.text('f')).toBe('during\n');
    } finally {
      await driver.stop();
    }
  });

  test('leave nothing behind when the driver stops', async () => {
    const driver = virtualSandboxes({ bubblewrap });
    await new TestSandbox(driver).bash('true');
    const pids = below(process.pid);
    const endless = new TestSandbox(driver).bash(ENDLESS_SCRIPT, 600);
    const [end] = await Promise.all([endless.catch((error: unknown) => error), driver.stop()]);
    expect(end).toBeInstanceOf(SandboxUnavailableError);
    await until('the children have ended', () => !pids.some(isAlive), WAIT_MS);
    expect(commandProcesses(process.pid)).toEqual([]);
  });
});

describe.each(confinements())('hostile commands, bubblewrap %s', (bubblewrap) => {
  hostileSuite((childrenPerTenant) => virtualSandboxes({ bubblewrap, childrenPerTenant }));
});
