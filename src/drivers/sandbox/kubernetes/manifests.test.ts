import { NetworkPolicy } from 'kubernetes-models/networking.k8s.io/v1';
import { PersistentVolumeClaim, Pod } from 'kubernetes-models/v1';
import { expect, test } from 'vitest';
import { claimOf, machineFor, machineOf, nameOf, networkPolicyOf, sandboxOf, volumeOf } from './manifests.ts';

const SETTINGS = { owner: 'host', images: ['debian:13'], runtimeClass: 'gvisor', storageClass: 'fast' };
const VOLUME = { tenant: 'tn_A/B', sandboxId: 'Ünsafe name', createdPosition: 123_456_789_012, generation: 12 };
const LIMITS = { cpus: 0.5, memoryBytes: 536_870_912, storageBytes: 1_073_741_824 };
const MADE = machineFor({ limits: LIMITS, hasNetwork: true }, 'debian:13');

test('the published schemas take what is made, whatever tenants call their sandboxes', () => {
  const sandbox = sandboxOf(VOLUME, SETTINGS, { made: MADE, hostEpoch: 3 });
  const { spec, metadata } = sandbox.spec.podTemplate;
  const pod = new Pod({ metadata: { name: nameOf(VOLUME, 'host'), ...metadata }, spec } as ConstructorParameters<
    typeof Pod
  >[0]);
  const claim = claimOf(VOLUME, SETTINGS, MADE) as ConstructorParameters<typeof PersistentVolumeClaim>[0];
  const policy = networkPolicyOf(SETTINGS) as ConstructorParameters<typeof NetworkPolicy>[0];
  for (const made of [pod, new PersistentVolumeClaim(claim), new NetworkPolicy(policy)]) made.validate();
  expect(nameOf(VOLUME, 'host')).toMatch(/^[a-z0-9-]{1,63}$/);
  const other = { ...VOLUME, tenant: 'tn_A/', sandboxId: `B${VOLUME.sandboxId}` };
  expect(new Set([nameOf(other, 'host'), nameOf(VOLUME, 'host'), nameOf(VOLUME, 'copy')]).size).toBe(3);
});

test('a volume says whose it is and what its pod is made of', () => {
  const { annotations } = claimOf(VOLUME, SETTINGS, MADE).metadata;
  expect(volumeOf(annotations)).toEqual(VOLUME);
  expect(machineOf(annotations)).toEqual(MADE);
  for (const other of [undefined, {}, { 'agent-host/volume': '{', 'agent-host/machine': '7' }]) {
    expect(volumeOf(other)).toBeNull();
    expect(machineOf(other)).toBeNull();
  }
});
