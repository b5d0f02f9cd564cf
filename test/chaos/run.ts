import { delay } from '#src/lib/backoff.ts';
import type { EventRecord } from '../support/client.ts';
import { Cluster } from '../support/cluster/cluster.ts';
import { done, Executor } from '../support/executor.ts';
import type { Random } from '../support/random.ts';
import { own } from './box-owner.ts';
import { emptyRecord, Sender } from './sender.ts';
import type { RunRecord } from './sender.ts';
import { injectFaults } from './faults.ts';
import { Pods } from './pods.ts';
import { pauseTurns } from './paused.ts';
import { people, resolveUncertain } from './people.ts';
import { Provider } from './provider.ts';
import { PageReader, StreamReader } from './readers.ts';
import { startAgain, Supervisor } from './supervisor.ts';
import { floodOne, talk } from './talk.ts';
import { ToolServer } from './tool-server.ts';
import { verdictOf } from './verdict.ts';
import type { Verdict } from './verdict.ts';
import { makeWorld } from './world.ts';
import type { World } from './world.ts';

export interface ChaosOptions {
  readonly random: Random;
  /** Of faults under load; set-up, healing and checking come on top. */
  readonly forMs: number;
  readonly report: (line: string) => void;
  /** Only faults whose name has this in it; default: all. */
  readonly only?: string | undefined;
}

const SESSIONS = 12;
const TALKERS = 8;
const EXECUTORS = 3;
const FORKS_MAX = 8;
/** Commands at once. */
const FLOOD = { min: 100, max: 300 };
/** The long form has all of them, a shorter one its part. */
const PAUSED_TURNS = { most: 50_000, inMs: 20 * 60_000 };
const FAULT_EVERY_MS = { min: 1_500, max: 4_000 };
const SETTLE_MS = 120_000;
const LOOK_MS = 300;

/** Short leases and bounds, so that what they are for is met within the run. */
const ENV = {
  AGENT_HOST_LEASE_SECONDS: '5',
  AGENT_HOST_UPLOAD_SECONDS: '10',
  AGENT_HOST_REQUEST_SECONDS: '10',
  AGENT_HOST_OPERATION_SECONDS: '5',
  AGENT_HOST_SANDBOX_CHILDREN: '2',
};

/** A run from the start of an installation to the verdict on it. */
export async function runChaos(options: ChaosOptions): Promise<Verdict> {
  const { random, forMs, report, only } = options;
  await using provider = await Provider.start(random);
  await using tools = await ToolServer.start(random);
  await using pods = await Pods.start(random.int(0, 1) === 0 ? 'machine' : 'cluster');
  await using cluster = await Cluster.start({ env: { ...ENV, ...pods.environment }, objects: 's3' });
  const world = await again(async () => await makeWorld(cluster, SESSIONS, { provider, tools, pods }));
  report(`An installation of ${cluster.nodes.length} Hosts, 3 NATS servers, Postgres and S3 runs.`);
  report(`Its pods are ${pods.cluster === null ? 'of this machine' : 'of a cluster'}.`);
  const paused = await again(async () => await pauseTurns(cluster, pausedCount(forMs)));
  report(`${paused.sessions.length} turns are paused.`);
  const load = await startLoad(world, random);
  const supervisor = new Supervisor(cluster);
  const supervising = new AbortController();
  const supervised = supervisor.run(supervising.signal);
  const faults = new Map<string, number>();
  const onFault = (name: string): void => {
    faults.set(name, (faults.get(name) ?? 0) + 1);
    report(name);
  };
  const { flood } = load;
  await injectFaults({ cluster, pods, supervisor, random, flood, only, forMs, everyMs: FAULT_EVERY_MS, onFault });
  supervising.abort();
  await supervised;
  await cluster.heal();
  await pods.cluster?.comeBack();
  report('Everything is mended; what is open is brought to its end.');
  const rest = await load.settle(report);
  report('The checker reads what is there.');
  const { exits, orphans } = supervisor;
  return await verdictOf({ cluster, world, paused, random, faults, exits, orphans, ...rest });
}

/** On a machine that is busy an installation may not answer before it is older. */
async function again<T>(make: () => Promise<T>): Promise<T> {
  const made: T[] = [];
  await startAgain(async () => void made.push(await make()));
  return made[0] as T;
}

function pausedCount(forMs: number): number {
  return Math.max(1, Math.round(PAUSED_TURNS.most * Math.min(1, forMs / PAUSED_TURNS.inMs)));
}

/** What a run leaves behind to be judged. */
export interface Rest {
  readonly record: RunRecord;
  readonly readers: readonly (StreamReader | PageReader)[];
  /** The whole history of each session, read page by page when everything was at rest. */
  readonly pages: ReadonlyMap<string, readonly EventRecord[]>;
  /** Sessions that did not come to rest in time. */
  readonly restless: readonly string[];
}

interface Load {
  readonly flood: () => Promise<void>;
  /** Ends the load, brings every turn to its end and lets the readers read all of it. */
  readonly settle: (report: ChaosOptions['report']) => Promise<Rest>;
}

async function startLoad({ tenant, sessions, boxes, executorToken }: World, random: Random): Promise<Load> {
  const record = emptyRecord();
  const stops = { talking: new AbortController(), people: new AbortController(), reading: new AbortController() };
  const sendingEnds = new AbortController();
  const sender = new Sender(tenant, record, sendingEnds.signal);
  const executors = await Promise.all(
    Array.from({ length: EXECUTORS }, async () => {
      const { url, tenantId } = { ...tenant.credentials };
      return await Executor.start({
        nodes: [{ url }],
        tenantId,
        token: executorToken,
        run: async ({ input }) => {
          await delay(random.int(0, 100));
          return done(input);
        },
      });
    }),
  );
  const answering = people({ tenant, sessions, sender, random, stop: stops.people.signal });
  const readers = new Map<string, readonly (StreamReader | PageReader)[]>();
  const reading: Promise<void>[] = [];
  const read = (id: string): void => {
    const ofSession = [new StreamReader(tenant, id, random), new PageReader(tenant, id)];
    readers.set(id, ofSession);
    for (const reader of ofSession) reading.push(reader.run(stops.reading.signal));
  };
  for (const id of sessions) read(id);
  const onFork = (id: string): void => {
    sessions.push(id);
    read(id);
  };
  const talkers = { sender, sessions, forksMax: FORKS_MAX, onFork, random, stop: stops.talking.signal };
  const talking = Array.from({ length: TALKERS }, async () => await talk(talkers));
  talking.push(own({ sender, boxes, random, stop: stops.talking.signal }));
  return {
    flood: async () => {
      const session = sessions[random.int(0, sessions.length - 1)] ?? '';
      const commands = Array.from({ length: random.int(FLOOD.min, FLOOD.max) }, async () => {
        await floodOne(sender, session, random);
      });
      await Promise.all(commands);
    },
    settle: async (report) => {
      stops.talking.abort();
      const late = setTimeout(() => sendingEnds.abort(), SETTLE_MS);
      await Promise.all(talking);
      await sender.settleDoubts();
      report('Every client knows what became of what it sent.');
      const restless = await atRest({ tenant, sessions, sender, random });
      report('Every session is at rest.');
      stops.people.abort();
      await answering;
      await sender.settleDoubts();
      clearTimeout(late);
      for (const executor of executors) await executor.stop();
      const all = [...readers.values()].flat();
      const pages = new Map<string, readonly EventRecord[]>();
      for (const id of sessions) pages.set(id, await tenant.items(id));
      await caughtUp(pages, all);
      report('Every reader has everything.');
      stops.reading.abort();
      await Promise.all(reading);
      return { record, readers: all, pages, restless };
    },
  };
}

/** Waits until every session is idle, and has what nobody knows the end of decided; returns those that do not get there. */
async function atRest(
  parts: Parameters<typeof resolveUncertain>[0] & { readonly sessions: readonly string[] },
): Promise<string[]> {
  const open = new Set(parts.sessions);
  for (const deadline = performance.now() + SETTLE_MS; open.size > 0 && performance.now() < deadline;) {
    for (const id of open) {
      const session = await parts.tenant.session(id).catch(() => null);
      if (session?.status === 'idle') open.delete(id);
      if (session?.status === 'uncertain') await resolveUncertain(parts, id);
    }
    await delay(LOOK_MS);
  }
  const said = [];
  for (const id of open) {
    const session = await parts.tenant.session(id).catch(String);
    said.push(`${id}: ${JSON.stringify(session)}`);
  }
  return said;
}

/** Waits until each reader has the newest event of its session; one that never gets it has lost it, and is judged so. */
async function caughtUp(pages: Rest['pages'], readers: Rest['readers']): Promise<void> {
  const isBehind = ({ sessionId, records }: Rest['readers'][number]): boolean => {
    const last = pages.get(sessionId)?.at(-1)?.eventId;
    return last !== undefined && !records.some(({ eventId }) => eventId === last);
  };
  for (const deadline = performance.now() + SETTLE_MS / 2; readers.some(isBehind) && performance.now() < deadline;) {
    await delay(LOOK_MS);
  }
}
