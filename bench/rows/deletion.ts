import { spawn } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { glob, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { bareEnvironment } from '#src/embedded/run-command.ts';
import { ms } from '../figures.ts';
import { Filler } from '../fill.ts';
import { expectStatus } from '../loops.ts';
import { followProjections } from '../projections.ts';
import type { Row } from '../row.ts';
import type { Node, Stage } from '../stage.ts';
import { names, Tenant } from '../tenant.ts';
import type { Waited, Waiting } from '../waiting.ts';
import { Lines, request } from '../wire.ts';

/** A turn of three steps has some 17 events. */
const SESSIONS = 10_000;
const TURNS_EACH = 6;
const ALONE_MS = 10_000;
const WARM_UP_MS = 5_000;
const PROJECTED_WITHIN_MS = 600_000;
const WAIT_MS_MAX = 100;
const WAITING = fileURLToPath(new URL('../waiting.ts', import.meta.url));
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

/** Resolves to how many events were written and projected. */
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

async function made(host: Node, stage: Stage): Promise<Tenant> {
  return await Tenant.create(host, stage.adminKey);
}

interface Scene {
  readonly host: Node;
  readonly stage: Stage;
  readonly reader: Tenant;
  readonly writer: Tenant;
}

/** What tenants beside it waited for, and how long it took, ms. */
interface Beside extends Waited {
  readonly tookMs: number;
}

async function beside({ host, stage, reader, writer }: Scene, work: () => Promise<unknown>): Promise<Beside> {
  const { address } = host;
  const given = { address, directory: stage.directory, sessions: OTHERS, ...{ reader, writer } } satisfies Waiting;
  const env = { ...bareEnvironment([]), WAITING: JSON.stringify(given) };
  const child = spawn(process.execPath, [WAITING], { env, stdio: ['pipe', 'pipe', 'inherit'] });
  const said = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  try {
    await said.next();
    const begun = performance.now();
    await work();
    const tookMs = performance.now() - begun;
    child.stdin.end();
    const { value = '' } = await said.next();
    return { ...(JSON.parse(value) as Waited), tookMs };
  } finally {
    child.kill('SIGKILL');
  }
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
