import { createReadStream } from 'node:fs';
import { glob, open, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { ms, Sample } from '../figures.ts';
import { Filler } from '../fill.ts';
import { expectStatus } from '../loops.ts';
import { followProjections } from '../projections.ts';
import type { Row } from '../row.ts';
import type { Node, Stage } from '../stage.ts';
import { names, rotation, Tenant } from '../tenant.ts';
import { Lines, request } from '../wire.ts';

/** A turn of three steps has some 17 events. */
const SESSIONS = 10_000;
const TURNS_EACH = 6;
const ALONE_MS = 10_000;
const WARM_UP_MS = 5_000;
const PROJECTED_WITHIN_MS = 600_000;
const WAIT_MS_MAX = 100;
const SYNC_EVERY_MS = 5;
const OWN_EVERY_MS = 5;
const LINE = Buffer.alloc(500);
/** Sessions of each of the others. */
const OTHERS = names('other', 17);
/** What the filler's answers say: nothing but the deleted tenant wrote it. */
const WRITTEN = 'of the turn has to say';

/**
 * Deletes an empty tenant and then one of a million events, while one more reads and another appends: how long each takes,
 * what these wait for, and in which files of the log and of the database something is left that was written.
 */
export const deletion: Row = async ({ stage, scale, report }) => {
  const host = await stage.host('commands,reads,projector');
  const [large, empty] = [await made(host, stage), await made(host, stage)];
  const [reader, writer] = [await made(host, stage), await made(host, stage)];
  const begun = performance.now();
  const ids = names('doomed', Math.floor(SESSIONS * scale));
  const events = await fill(stage, large, ids);
  report(`${events} events of ${ids.length} sessions written and projected in ${ms(performance.now() - begun)}`);
  for (const tenant of [reader, writer]) await tenant.openSessions(host, OTHERS);
  // What is asked first is slow: it is no measure of what a tenant waits for by itself.
  collectGarbage();
  const scene = { host, stage, reader, writer };
  await beside(scene, async () => await pause(WARM_UP_MS));
  const alone = await beside(scene, async () => await pause(ALONE_MS));
  report(`the others alone: ${alone.text}`);
  const ofEmpty = await beside(scene, async () => await remove(host, stage, empty));
  const ofLarge = await beside(scene, async () => await remove(host, stage, large));
  const left = await filesWith(stage, WRITTEN);
  const searched = left.length === 0 ? 'its bytes are in no file' : `its bytes are in ${left.join(', ')}`;
  const line = (what: string, { tookMs, text, longestMs }: Beside, found: string) => ({
    measure: `deletion of a tenant of ${what} beside ${events} events; one reads, one appends`,
    subject: `${ms(tookMs)}; they wait: ${text}${found}`,
    baseline: `alone ${alone.text}`,
    ratio: '',
    target: `no wait > ${WAIT_MS_MAX} ms`,
    met: longestMs <= WAIT_MS_MAX && left.length === 0,
    goals: [],
  });
  return [line('no events', ofEmpty, ''), line(`${events} events`, ofLarge, `; ${searched}`)];
};

/** Nothing of the filler is left afterwards: see `collectGarbage`. Resolves to how many events were written and projected. */
async function fill(stage: Stage, { id: tenantId }: Tenant, ids: readonly string[]): Promise<number> {
  const filler = await Filler.open({ natsUrl: stage.natsUrl, hostKey: stage.hostKey, tenantId });
  const progress = followProjections(stage);
  await filler.openSessions(ids, 'bench');
  await filler.turnsIn(ids, TURNS_EACH);
  await filler.close();
  await progress.caughtUp(PROJECTED_WITHIN_MS);
  progress.stop();
  return filler.events;
}

/** Of what filled the log: collected later, it made this program late by 370 to 480 ms, which looked like a wait for the Host. */
function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
}

async function made(host: Node, stage: Stage): Promise<Tenant> {
  return await Tenant.create(host, stage.adminKey);
}

interface Scene {
  readonly host: Node;
  readonly stage: Stage;
  /** Two beside it: a list waits, for up to 100 ms, for what its own tenant has just recorded. */
  readonly reader: Tenant;
  readonly writer: Tenant;
}

interface Beside {
  readonly tookMs: number;
  /** Of the tenants beside it. */
  readonly text: string;
  readonly longestMs: number;
}

/**
 * What tenants wait for, request by request, while something is done: one that reads and one that appends at a time. And
 * what the disk makes a program wait that has nothing to do with either: each append waits for it as well.
 */
async function beside({ host, stage, reader, writer }: Scene, work: () => Promise<unknown>): Promise<Beside> {
  const lines = new Lines(host.address);
  let isDone = false;
  const own = monitorEventLoopDelay({ resolution: OWN_EVERY_MS });
  own.enable();
  const longest = { ms: 0, atMs: 0 };
  const start = performance.now();
  const syncing = async (): Promise<Sample> => {
    const waits = new Sample();
    const file = await open(join(stage.directory, 'synced'), 'w');
    while (!isDone) {
      const begun = performance.now();
      await file.write(LINE, 0);
      await file.datasync();
      waits.add(performance.now() - begun);
      await pause(SYNC_EVERY_MS);
    }
    await file.close();
    return waits;
  };
  const asking = async (next: () => string, status: number): Promise<Sample> => {
    const waits = new Sample();
    while (!isDone) {
      const sent = performance.now();
      expectStatus(await lines.send(next()), status);
      const waited = performance.now() - sent;
      waits.add(waited);
      if (waited > longest.ms) Object.assign(longest, { ms: waited, atMs: sent - start });
    }
    return waits;
  };
  const [read = ''] = OTHERS;
  const [nextRead, nextAppended] = [rotation([reader.page(read, 'limit=50'), reader.list(20)]), rotation(OTHERS)];
  const loops = Promise.all([
    asking(nextRead, 200),
    asking(() => writer.cancel(nextAppended(), 'nothing to cancel'), 202),
    syncing(),
  ]);
  await work();
  const tookMs = performance.now() - start;
  isDone = true;
  own.disable();
  const [reads, appends, syncs] = await loops;
  lines.close();
  const text =
    `reads ${reads.text}, appends ${appends.text}, the longest ${ms(longest.atMs)} after its begin; ` +
    `an fsync of a line in a file of its own ${syncs.text}; this program itself was late by ${ms(own.max / 1e6)} at most`;
  return { tookMs, text, longestMs: longest.ms };
}

async function remove(host: Node, stage: Stage, { id }: Tenant): Promise<void> {
  const lines = new Lines(host.address);
  const headers = `Authorization: Bearer ${stage.adminKey}\r\nSvc-Protocol: 8\r\n`;
  expectStatus(await lines.send(request('DELETE', `/v1/admin/tenants/${id}`, { headers })), 200);
  lines.close();
}

/** Files of the servers and of the Host that contain a text. */
async function filesWith(stage: Stage, text: string): Promise<readonly string[]> {
  const found: string[] = [];
  for await (const name of glob('**', { cwd: stage.directory })) {
    const path = join(stage.directory, name);
    const isFile = await stat(path).then(
      (one) => one.isFile(),
      () => false,
    );
    if (isFile && (await contains(path, text))) found.push(name);
  }
  return found;
}

async function contains(path: string, text: string): Promise<boolean> {
  let tail = '';
  try {
    for await (const chunk of createReadStream(path, { encoding: 'latin1' })) {
      const content = tail + String(chunk);
      if (content.includes(text)) return true;
      tail = content.slice(-text.length);
    }
  } catch {
    // It went while it was read.
  }
  return false;
}
