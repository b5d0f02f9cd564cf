import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { withDescendants } from '#src/drivers/sandbox/child-process.ts';
import { podSuite, podWallsSuite } from '../conformance/pod.ts';
import { podMemorySuite } from '../conformance/pod-memory.ts';
import { hostilePodSuite } from '../conformance/sandbox-hostile.ts';
import { openTestPods, podWays, TestPod } from '../support/pods.ts';
import { until } from '../support/wait-until.ts';

describe.each(podWays())('pods, users $users, cgroups $cgroups', (way) => {
  podSuite(async () => await Promise.resolve(openTestPods(way)));
  podWallsSuite(async () => await Promise.resolve(openTestPods(way)));
  podMemorySuite(() => openTestPods(way));
});

describe.each(podWays().slice(0, 1))('hostile commands in pods, users $users, cgroups $cgroups', (way) => {
  hostilePodSuite((childrenPerTenant) => openTestPods({ ...way, childrenPerTenant }));
});

/** The programs between a command and the Host, which pass its output on. */
function passers(): number[] {
  return withDescendants(process.pid).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/comm`, 'latin1') === 'cat\n';
    } catch {
      return false;
    }
  });
}

describe.each(podWays().slice(0, 1))('the output of a command, users $users, cgroups $cgroups', (way) => {
  test('is whole, or the command is lost: each program that passes it on is killed', async () => {
    await using pods = openTestPods(way);
    const pod = await TestPod.start(pods.driver);
    for (const which of [0, 1]) {
      const running = pod.bash(
        'touch begun; until [ -e go ]; do :; done; rm begun go; echo out; echo err >&2; touch ended',
      );
      await until('it has begun', async () => (await pod.paths())?.includes('begun') === true);
      const found = passers();
      expect(found).toHaveLength(2);
      for (const pid of found) process.kill(pid, 'SIGSTOP');
      const go = { path: 'go', bytes: new Uint8Array(0), storageBytes: pod.limits.storageBytes };
      expect(await pod.driver.files.write(pod.volume, go)).toBe('written');
      await until('it has ended', async () => (await pod.paths())?.includes('ended') === true);
      for (const [at, pid] of found.entries()) process.kill(pid, at === which ? 'SIGKILL' : 'SIGCONT');
      expect(await running).toMatchObject({ outcome: 'killed', code: 'sandbox_lost' });
      expect(await pod.paths()).toEqual(['ended']);
    }
    expect(await pod.out('rm ended; echo "all of it"')).toBe('all of it\n');
  });
});

test('where something is missing, pods are unavailable, and it says what', async () => {
  await using nowhere = openTestPods({ path: '/nowhere' });
  expect(await nowhere.driver.status()).toMatchObject({
    available: false,
    reason: expect.stringMatching(/^bubblewrap, .* not installed$|^pods run on Linux/),
  });
  await using off = openTestPods({ enabled: false });
  expect(await off.driver.status()).toMatchObject({
    available: false,
    reason: expect.stringContaining('AGENT_HOST_PODS'),
  });
});
