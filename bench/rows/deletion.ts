import { createReadStream } from 'node:fs';
import { glob, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
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
/** Of the other tenant: one is read, to the others it appends. */
const OTHERS = names('other', 17);
/** What the filler's answers say: nothing but the deleted tenant wrote it. */
const WRITTEN = 'of the turn has to say';

/**
 * Deletes an empty tenant and then one of a million events, while another one reads and appends: how long each takes, what
 * the other one waits for, and in which files of the log and of the database something is left that was written.
 */
export const deletion: Row = async ({ stage, scale, report }) => {
  const host = await stage.host('commands,reads,projector');
  const [large, empty, other] = [await made(host, stage), await made(host, stage), await made(host, stage)];
  const filler = await Filler.open({ natsUrl: stage.natsUrl, hostKey: stage.hostKey, tenantId: large.id });
  const progress = followProjections(stage);
  const begun = performance.now();
  const ids = names('doomed', Math.floor(SESSIONS * scale));
  await filler.openSessions(ids, 'bench');
  await filler.turnsIn(ids, TURNS_EACH);
  await filler.close();
  await progress.caughtUp(PROJECTED_WITHIN_MS);
  progress.stop();
  const { events } = filler;
  report(`${events} events of ${ids.length} sessions written and projected in ${ms(performance.now() - begun)}`);
  await other.openSessions(host, OTHERS);
  // What is asked first is slow: it is no measure of what a tenant waits for by itself.
  await beside(host, other, async () => await pause(WARM_UP_MS));
  const alone = await beside(host, other, async () => await pause(ALONE_MS));
  report(`another tenant alone: ${alone.text}`);
  const ofEmpty = await beside(host, other, async () => await remove(host, stage, empty));
  const ofLarge = await beside(host, other, async () => await remove(host, stage, large));
  const left = await filesWith(stage, WRITTEN);
  const searched = left.length === 0 ? 'its bytes are in no file' : `its bytes are in ${left.join(', ')}`;
  const line = (what: string, { tookMs, text, longestMs }: Beside, found: string) => ({
    measure: `deletion of a tenant of ${what} beside ${events} events; another one reads and appends`,
    subject: `${ms(tookMs)}; the other one waits: ${text}${found}`,
    baseline: `alone ${alone.text}`,
    ratio: '',
    target: `no wait > ${WAIT_MS_MAX} ms`,
    met: longestMs <= WAIT_MS_MAX && left.length === 0,
    goals: [],
  });
  return [line('no events', ofEmpty, ''), line(`${events} events`, ofLarge, `; ${searched}`)];
};

async function made(host: Node, stage: Stage): Promise<Tenant> {
  return await Tenant.create(host, stage.adminKey);
}

interface Beside {
  readonly tookMs: number;
  /** Of the tenant beside it. */
  readonly text: string;
  readonly longestMs: number;
}

/** What a tenant waits for, request by request, while something is done: one that reads and one that appends at a time. */
async function beside(host: Node, tenant: Tenant, work: () => Promise<unknown>): Promise<Beside> {
  const lines = new Lines(host.address);
  let isDone = false;
  const longest = { ms: 0, atMs: 0 };
  const start = performance.now();
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
  const [read = '', ...appended] = OTHERS;
  const [nextRead, nextAppended] = [rotation([tenant.page(read, 'limit=50'), tenant.list(20)]), rotation(appended)];
  const loops = Promise.all([
    asking(nextRead, 200),
    asking(() => tenant.cancel(nextAppended(), 'nothing to cancel'), 202),
  ]);
  await work();
  const tookMs = performance.now() - start;
  isDone = true;
  const [reads, appends] = await loops;
  lines.close();
  const text = `reads ${reads.text}, appends ${appends.text}, the longest ${ms(longest.atMs)} after its begin`;
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
