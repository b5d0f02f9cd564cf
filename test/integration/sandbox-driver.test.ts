import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test, vi } from 'vitest';
import { readConfig } from '#src/app/config.ts';
import { openSandboxes } from '#src/app/sandboxes.ts';
import { SandboxUnavailableError } from '#src/drivers/sandbox/port.ts';
import type { PodNetwork, SandboxAnswer } from '#src/drivers/sandbox/port.ts';
import { commandSuite, fileToolSuite } from '../conformance/sandbox.ts';
import { capturedLog } from '../support/logger.ts';
import { openTestPods, podWays, TestPod } from '../support/pods.ts';
import { confinements, TestSandbox, virtualSandboxes } from '../support/sandboxes.ts';

describe.each(confinements())('commands in virtual sandboxes, bubblewrap %s', (bubblewrap) => {
  commandSuite(() => virtualSandboxes({ bubblewrap }));
});

describe('file tools of virtual sandboxes', () => {
  fileToolSuite(() => virtualSandboxes());
});

test('the sources as they are run commands too, with the settings of the node', async () => {
  const environment = { AGENT_HOST_SANDBOX_CHILDREN: '1', AGENT_HOST_SANDBOX_BUBBLEWRAP: 'off' };
  const { sandboxes: config } = readConfig(environment);
  expect(config).toMatchObject({ children: 1, childrenPerTenant: 1, memoryMiB: 256, limits: { files: 10_000 } });
  const driver = openSandboxes({ config, path: undefined, logger: capturedLog().logger });
  try {
    const answer = await new TestSandbox(driver).bash('echo here');
    expect(answer).toMatchObject({ result: { stdout: 'here\n' } });
    expect(driver.status()).toMatchObject({ available: true, confinement: 'none' });
  } finally {
    await driver.stop();
  }
});

test('a command that is given up while its process starts does not run', async () => {
  const driver = virtualSandboxes();
  try {
    const box = new TestSandbox(driver);
    let asked = 0;
    box.web = async () => {
      asked += 1;
      return await Promise.reject(new Error('not answered'));
    };
    const controller = new AbortController();
    setTimeout(() => controller.abort(new Error('given up')), 50);
    const command = 'curl -s https://api.example.com/send; sleep 20';
    await expect(box.bash(command, 60, controller.signal)).rejects.toThrow('given up');
    expect(asked).toBe(0);
  } finally {
    await driver.stop();
  }
}, 19_000);

/** The real bubblewrap, but for one start that is killed while there is a file `fail`. */
function failingOnce() {
  const directory = mkdtempSync(join(tmpdir(), 'agent-host-bwrap-'));
  const fail = join(directory, 'fail');
  const script = `#!/bin/sh\nif [ -e ${fail} ]; then rm ${fail}; kill -KILL $$; fi\nexec /usr/bin/bwrap "$@"\n`;
  writeFileSync(join(directory, 'bwrap'), script);
  chmodSync(join(directory, 'bwrap'), 0o755);
  const driver = virtualSandboxes({
    bubblewrap: 'auto',
    path: `${directory}:/usr/bin:/bin`,
    children: 1,
    childrenIdle: 0,
  });
  return {
    driver,
    fail: () => writeFileSync(fail, ''),
    hasFailed: () => !existsSync(fail),
    [Symbol.asyncDispose]: async () => {
      await driver.stop();
      rmSync(directory, { recursive: true });
    },
  };
}

describe.runIf(confinements().includes('required'))('bubblewrap that fails once', () => {
  test('stays when it has worked before', async () => {
    await using one = failingOnce();
    expect(await new TestSandbox(one.driver).bash('echo 1')).toMatchObject({ outcome: 'completed' });
    one.fail();
    // Whether the spare process or that of the call is the one that fails, none runs without it.
    for (const tenant of ['tn_b', 'tn_c', 'tn_d']) {
      const answer = await new TestSandbox(one.driver, tenant).bash('echo 2').catch((error: unknown) => error);
      const isTriedAgain = answer instanceof SandboxUnavailableError;
      expect(isTriedAgain || (answer as SandboxAnswer).outcome === 'completed').toBe(true);
      expect(one.driver.status().confinement).toBe('bubblewrap');
    }
    expect(one.hasFailed()).toBe(true);
    expect(await new TestSandbox(one.driver, 'tn_e').bash('echo 3')).toMatchObject({ outcome: 'completed' });
  });

  test('does not work here when it never has', async () => {
    await using one = failingOnce();
    one.fail();
    expect(await new TestSandbox(one.driver).bash('echo 1')).toMatchObject({ outcome: 'completed' });
    expect(one.driver.status().confinement).toBe('none');
  });
});

test('a Host without a free descriptor says that it cannot run a command, and lives on', () => {
  const program = fileURLToPath(new URL('../support/full-process.ts', import.meta.url));
  const out = execFileSync('/bin/sh', ['-c', 'ulimit -n 128; exec "$@"', 'sh', process.execPath, program]);
  expect(out.toString()).toBe('child SandboxUnavailableError\npod SandboxUnavailableError\nalive\n');
});

test.each(podWays().slice(0, 1))('the directory of sockets goes between two commands, users $users', async (way) => {
  await using pods = openTestPods(way);
  const pod = await TestPod.start(pods.driver);
  const temporary = mkdtempSync(join(tmpdir(), 'agent-host-tmp-'));
  chmodSync(temporary, 0o755);
  vi.stubEnv('TMPDIR', temporary);
  try {
    // Neither command asks for anything.
    pod.network = {} as PodNetwork;
    expect(await pod.out('echo 1')).toBe('1\n');
    const made = readdirSync(temporary);
    expect(made).toHaveLength(1);
    for (const name of made) rmSync(join(temporary, name), { recursive: true });
    expect(await pod.out('echo 2')).toBe('2\n');
  } finally {
    vi.unstubAllEnvs();
    rmSync(temporary, { recursive: true });
  }
});
