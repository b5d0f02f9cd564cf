import { expect, test } from 'vitest';
import { hasBubblewrap } from '../support/kubernetes-container.ts';
import { openClusterPods } from '../support/kubernetes.ts';
import { TestPod } from '../support/pods.ts';

/** A word that is in the program that runs a command. */
const RUN = 'flock -w 0.5 9';

test('a connection that stays without a word is given up: its command is asked for by another', async () => {
  await using pods = await openClusterPods({ way: hasBubblewrap() ? 'bubblewrap' : 'plain' });
  const one = await TestPod.start(pods.driver);
  pods.server.execs.faults.push({ word: RUN, at: 'mute' });
  const answer = await one.bash('echo x >> count; cat count', 5);
  expect(answer).toMatchObject({ outcome: 'completed', result: { stdout: 'x\n' } });
}, 90_000);
