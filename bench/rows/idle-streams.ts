import { waitUntil } from '#src/embedded/wait-until.ts';
import { cpuMs, fileDescriptorsMax, residentBytes } from '../figures.ts';
import { atMost, expectStatus } from '../loops.ts';
import type { Row } from '../row.ts';
import { bare, names, Tenant } from '../tenant.ts';
import { Lines } from '../wire.ts';
import type { EventReader } from '../wire.ts';

const STREAMS = 10_000;
/** Opened at the same time. */
const OPENING = 64;
/** What a process has open besides. */
const DESCRIPTORS_BESIDE = 500;
const KB = 1_000;
const EACH_MAX_KB = 20;
const SETTLED_MS = 5_000;
const SETTLES_WITHIN_MS = 60_000;
const IDLE_MS = 5_000;
/** Every so many streams, one is sent an event, to see that all are alive. */
const PROBE_EVERY = 100;
const ARRIVES_WITHIN_MS = 10_000;

/**
 * Open streams, each of a session of its own, in which nothing happens: what they cost the node in memory, and in
 * processor time. The same of the bare handler, whose streams know nothing of sessions, tenants or places in a history.
 */
export const idleStreams: Row = async ({ stage, scale, report }) => {
  const count = Math.floor(STREAMS * scale);
  const descriptors = fileDescriptorsMax();
  if (descriptors < count + DESCRIPTORS_BESIDE) {
    throw new Error(`${count} streams need more file descriptors than the ${descriptors} of this machine (ulimit -n)`);
  }
  const host = await stage.host('commands,reads,projector,engine');
  const baseline = await stage.baseline();
  const tenant = await Tenant.create(host, stage.adminKey);
  const ids = names('idle', count);
  await tenant.openSessions(host, ids);
  const arrived = new Set<string>();
  const subject = await streamsOf(host.pid, ids, async (id) => {
    return await tenant.follow(host, id, (frame) => {
      if (frame.includes('command.cancel')) arrived.add(id);
    });
  });
  report(`${count} streams of the Host: ${inKb(subject.bytesEach)} and ${subject.cpuEach} each`);
  const probed = ids.filter((_, index) => index % PROBE_EVERY === 0);
  const lines = new Lines(host.address);
  await atMost(8, probed, async (id) => expectStatus(await lines.send(tenant.cancel(id, 'probe')), 202));
  const all = await waitUntil(() => (arrived.size === probed.length ? true : undefined), {
    timeoutMs: ARRIVES_WITHIN_MS,
  });
  lines.close();
  for (const reader of subject.readers) reader.close();
  const bareStreams = await streamsOf(
    baseline.pid,
    ids,
    async (id) => await bare.follow(baseline, id, () => undefined),
  );
  for (const reader of bareStreams.readers) reader.close();
  return [
    {
      measure: `6 ${count} idle SSE streams on one node, each of a session of its own`,
      subject: `${inKb(subject.bytesEach)} and ${subject.cpuEach} each; ${arrived.size} of ${probed.length} probes arrived`,
      baseline: `${inKb(bareStreams.bytesEach)} and ${bareStreams.cpuEach} each`,
      ratio: (subject.bytesEach / bareStreams.bytesEach).toFixed(2),
      target: `${STREAMS} open, < ${EACH_MAX_KB} KB each`,
      met: all === true && subject.bytesEach < EACH_MAX_KB * KB,
      goals: [
        {
          label: `6 each of ${count} idle streams`,
          value: subject.bytesEach / KB,
          target: EACH_MAX_KB,
          unit: 'KB',
          better: 'less',
        },
      ],
    },
  ];
};

async function streamsOf(
  pid: number,
  ids: readonly string[],
  open: (id: string) => Promise<EventReader>,
): Promise<{ readers: readonly EventReader[]; bytesEach: number; cpuEach: string }> {
  const before = await settled(pid);
  const readers: EventReader[] = [];
  await atMost(OPENING, ids, async (id) => void readers.push(await open(id)));
  const after = await settled(pid);
  const cpu = cpuMs(pid);
  const began = performance.now();
  await waitUntil(() => (performance.now() - began >= IDLE_MS ? true : undefined), { timeoutMs: 2 * IDLE_MS });
  const usPerSecond = ((cpuMs(pid) - cpu) * 1_000_000) / (performance.now() - began) / ids.length;
  const bytesEach = (after - before) / ids.length;
  return { readers, bytesEach, cpuEach: `${usPerSecond.toFixed(1)} µs of CPU a second` };
}

/** The memory of the process once it has not changed for a while: what the opening left behind has been collected then. */
async function settled(pid: number): Promise<number> {
  let lowest = Number.POSITIVE_INFINITY;
  let since = performance.now();
  const look = (): number | undefined => {
    const now = residentBytes(pid);
    if (now < lowest * 0.995) [lowest, since] = [now, performance.now()];
    return performance.now() - since >= SETTLED_MS ? lowest : undefined;
  };
  return (await waitUntil(look, { timeoutMs: SETTLES_WITHIN_MS, intervalMs: 100 })) ?? lowest;
}

function inKb(bytes: number): string {
  return `${(bytes / KB).toFixed(1)} KB`;
}
