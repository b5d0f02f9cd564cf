import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { directoryObjects } from '#src/drivers/objects/directory.ts';
import type { ObjectStore } from '#src/drivers/objects/port.ts';
import { ArtifactClient, perSecond, placeOf, putDirectly } from '../artifacts.ts';
import { forgetPeak, median, MIB, peakBytes, residentBytes } from '../figures.ts';
import type { Measure, Row } from '../row.ts';
import { Tenant } from '../tenant.ts';

/** At full length, bytes. */
const SIZE = 2_048 * MIB;
const ROUNDS = 3;
/** What the memory of a Host that is warm may grow by while bytes of any number flow through it. */
const GROWTH_MAX = 64 * MIB;
/** A first transfer makes code and buffers that stay: they are not what a large one costs. */
const WARM_UP = 128 * MIB;

/**
 * A large file up and down, one after the other, beside the same bytes written to and read from the same kind of store by
 * this process. The ratio is a figure to look at: client and Host share the machine, the bare side has no network between.
 */
export const artifactBytes: Row = async ({ stage, scale, report }) => {
  const size = Math.max(64, Math.floor((SIZE * scale * scale) / MIB)) * MIB;
  const env = { AGENT_HOST_ARTIFACT_FILE_BYTES: String(SIZE), AGENT_HOST_REQUEST_SECONDS: '600' };
  const host = await stage.host('commands,reads,projector,engine', env);
  const tenant = await Tenant.create(host, stage.adminKey);
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-bench-objects-'));
  const store = await directoryObjects(directory);
  const rates: Record<'up' | 'down' | 'write' | 'read', number[]> = { up: [], down: [], write: [], read: [] };
  let growth = 0;
  try {
    const call = new ArtifactClient(host, tenant);
    const warm = await call.upload(WARM_UP);
    await call.download(warm, WARM_UP);
    await call.remove(warm);
    for (let round = 0; round < ROUNDS; round++) {
      forgetPeak(host.pid);
      const before = residentBytes(host.pid);
      const began = performance.now();
      const id = await call.upload(size);
      rates.up.push(size / (performance.now() - began));
      const again = performance.now();
      await call.download(id, size);
      rates.down.push(size / (performance.now() - again));
      growth = Math.max(growth, peakBytes(host.pid) - before);
      await call.remove(id);
      const direct = await written(store, size);
      rates.write.push(direct.write);
      rates.read.push(direct.read);
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  report(`${size / MIB} MiB, ${ROUNDS} times; the Host's memory grew by ${(growth / MIB).toFixed(0)} MiB at most`);
  const line = (measure: string, ours: readonly number[], theirs: readonly number[]): Measure => {
    const ratio = median(ours) / median(theirs);
    return {
      measure: `artifact of ${size / MIB} MiB, ${measure} (bare: the same bytes and the same store, no Host)`,
      subject: perSecond(median(ours)),
      baseline: perSecond(median(theirs)),
      ratio: ratio.toFixed(2),
      target: `memory + ≤ ${GROWTH_MAX / MIB} MiB`,
      met: growth <= GROWTH_MAX,
      goals: [
        {
          label: `artifact ${measure}, memory`,
          value: Math.max(1, growth / MIB),
          target: GROWTH_MAX / MIB,
          unit: 'MiB',
          better: 'less',
        },
      ],
    };
  };
  return [line('up', rates.up, rates.write), line('down', rates.down, rates.read)];
};

async function written(store: ObjectStore, size: number): Promise<{ write: number; read: number }> {
  const began = performance.now();
  await putDirectly(store, 'up_bench', size);
  const write = size / (performance.now() - began);
  const again = performance.now();
  const stream = await store.open(placeOf('up_bench'));
  let read = 0;
  if (stream !== null) for await (const chunk of stream) if (chunk instanceof Uint8Array) read += chunk.length;
  if (read !== size) throw new Error('the store has not given back what it was given');
  const rate = size / (performance.now() - again);
  await store.remove(placeOf('up_bench'));
  return { write, read: rate };
}
