import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { directoryObjects } from '#src/drivers/objects/directory.ts';
import { ArtifactClient, perSecond, placeOf, putDirectly } from '../artifacts.ts';
import { forgetPeak, median, MIB, peakBytes, residentBytes } from '../figures.ts';
import type { Row } from '../row.ts';
import { Tenant } from '../tenant.ts';

const AT_ONCE = 50;
/** Of each file, at full length, bytes. */
const SIZE = 16 * MIB;
const ROUNDS = 3;
/** What one upload under way may hold, over what a warm Host holds anyway. */
const EACH_MAX = 2 * MIB;

/** Many files up at the same time, beside the same bytes written to the same kind of store at the same time by this process. */
export const uploads: Row = async ({ stage, scale, report }) => {
  const size = Math.max(1, Math.floor((SIZE * scale) / MIB)) * MIB;
  const host = await stage.host('commands,reads,projector,engine');
  const client = new ArtifactClient(host, await Tenant.create(host, stage.adminKey));
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-bench-objects-'));
  const store = await directoryObjects(directory);
  const every = Array.from({ length: AT_ONCE }, (_, index) => `up_${index}`);
  const timed = async (work: (name: string) => Promise<void>): Promise<number> => {
    const began = performance.now();
    await Promise.all(every.map(work));
    return (size * AT_ONCE) / (performance.now() - began);
  };
  const rates: Record<'subject' | 'bare', number[]> = { subject: [], bare: [] };
  let growth = 0;
  try {
    for (let round = 0; round <= ROUNDS; round++) {
      const ids: string[] = [];
      forgetPeak(host.pid);
      const before = residentBytes(host.pid);
      const subject = await timed(async () => void ids.push(await client.upload(size)));
      const grown = peakBytes(host.pid) - before;
      await Promise.all(ids.map(async (id) => await client.download(id, size)));
      await Promise.all(ids.map(async (id) => await client.remove(id)));
      const bare = await timed(async (name) => await putDirectly(store, name, size));
      await Promise.all(every.map(async (name) => await store.remove(placeOf(name))));
      report(`${perSecond(subject)} against ${perSecond(bare)}, memory + ${(grown / MIB).toFixed(0)} MiB`);
      // The first round makes code and buffers that stay.
      if (round === 0) continue;
      rates.subject.push(subject);
      rates.bare.push(bare);
      growth = Math.max(growth, grown);
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
  return [
    {
      measure: `${AT_ONCE} uploads at once, ${size / MIB} MiB each (bare: the same bytes and the same store, no Host)`,
      subject: `${perSecond(median(rates.subject))}, memory + ${(growth / MIB).toFixed(0)} MiB`,
      baseline: perSecond(median(rates.bare)),
      ratio: (median(rates.subject) / median(rates.bare)).toFixed(2),
      target: `all stored, memory + ≤ ${EACH_MAX / MIB} MiB each`,
      met: growth <= EACH_MAX * AT_ONCE,
      goals: [
        {
          label: `${AT_ONCE} uploads at once, memory`,
          value: Math.max(1, growth / MIB),
          target: (EACH_MAX * AT_ONCE) / MIB,
          unit: 'MiB',
          better: 'less',
        },
      ],
    },
  ];
};
