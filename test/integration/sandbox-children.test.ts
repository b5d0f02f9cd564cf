import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import { withDescendants } from '#src/drivers/sandbox/child-process.ts';
import { childCommand, onPath } from '#src/drivers/sandbox/confinement.ts';
import { SandboxUnavailableError } from '#src/drivers/sandbox/port.ts';
import { hostileSuite } from '../conformance/sandbox-hostile.ts';
import { CHILD_PROGRAM, confinements, ENDLESS_SCRIPT, TestSandbox, virtualSandboxes } from '../support/sandboxes.ts';
import { until } from '../support/wait-until.ts';

const WAIT_MS = 60_000;

/** Whether a process is there and is no zombie. */
function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2, stat.lastIndexOf(')') + 3) !== 'Z';
  } catch {
    return false;
  }
}

/** Living processes of these process groups. */
function inGroups(groups: ReadonlySet<number>): number[] {
  const all = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return all.map(Number).filter((pid) => {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
      const [state, , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return state !== 'Z' && groups.has(Number(group));
    } catch {
      return false;
    }
  });
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

  test('end with a Host that is killed at any moment of their start', async () => {
    const path = bubblewrap === 'off' ? null : onPath('bwrap', process.env['PATH']);
    const command = childCommand(CHILD_PROGRAM, 64, path);
    const groups = new Set<number>();
    for (let n = 0; n < 60; n++) {
      const child = spawn(command.file, [...command.args], {
        ...{ env: {}, cwd: '/', stdio: ['pipe', 'pipe', 'pipe', 'pipe'], detached: true },
      });
      for (const pipe of child.stdio) pipe?.on('error', () => undefined);
      const exited = once(child, 'exit');
      groups.add(child.pid ?? 0);
      await pause(n / 3);
      // As the system closes what a killed process had open.
      for (const pipe of child.stdio) pipe?.destroy();
      await exited;
    }
    await until('nothing of them is left', () => inGroups(groups).length === 0, WAIT_MS);
    expect(inGroups(groups)).toEqual([]);
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
    await until('nobody runs a command', () => commandProcesses(process.pid).length === 0, WAIT_MS);
  });
});

describe.each(confinements())('hostile commands, bubblewrap %s', (bubblewrap) => {
  hostileSuite((childrenPerTenant) => virtualSandboxes({ bubblewrap, childrenPerTenant }));
});
