import { describe, expect, test } from 'vitest';
import { podSuite, podWallsSuite } from '../conformance/pod.ts';
import { podMemorySuite } from '../conformance/pod-memory.ts';
import { hostilePodSuite } from '../conformance/sandbox-hostile.ts';
import { openTestPods, podWays } from '../support/pods.ts';

describe.each(podWays())('pods, users $users, cgroups $cgroups', (way) => {
  podSuite(async () => await Promise.resolve(openTestPods(way)));
  podWallsSuite(async () => await Promise.resolve(openTestPods(way)));
  podMemorySuite(() => openTestPods(way));
});

describe.each(podWays().slice(0, 1))('hostile commands in pods, users $users, cgroups $cgroups', (way) => {
  hostilePodSuite((childrenPerTenant) => openTestPods({ ...way, childrenPerTenant }));
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
