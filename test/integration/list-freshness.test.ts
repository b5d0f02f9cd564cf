import { afterAll, beforeAll, expect, test } from 'vitest';
import { artifactList } from '#src/http/wire/artifacts.ts';
import { sandboxList } from '#src/http/wire/sandboxes.ts';
import * as wire from '#src/http/wire/schemas.ts';
import { withConnection } from '#src/projections/read-store/connection.ts';
import { SCHEMAS } from '#src/projections/schemas.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

let projecting: Host;
/** Everything but feeding read models. */
let node: Host;
let tenant: TenantClient;

beforeAll(async () => {
  projecting = await startHost({ singleProcess: true });
  node = await startHost({ join: projecting, env: { AGENT_HOST_ROLES: 'commands,reads,engine' } });
  tenant = (await new AdminClient(projecting).createTenant()).at(node);
  await tenant.saveAgent();
});
afterAll(async () => {
  await node[Symbol.asyncDispose]();
  await projecting[Symbol.asyncDispose]();
});

const LATE = [{ text: 'late', delayMs: 600_000 }];
/** A list waits a tenth of a second for what was recorded before it; the clocks of two processes may round. */
const WAITED_MS = 90;

async function running(): Promise<{ ids: string[]; asOf: number }> {
  const answer = await tenant.request({ path: '/v1/sessions?status=running' });
  expect(answer.status, answer.text).toBe(200);
  const { sessions, asOf } = wire.sessionList.parse(answer.json);
  return { ids: sessions.map(({ id }) => id), asOf: Date.parse(asOf) };
}

test(
  'a list right after a command shows what the command did, or says up to when it is complete',
  { timeout: 180_000 },
  async () => {
    const untold: string[] = [];
    let shown = 0;
    for (let round = 0; round < 50; round++) {
      const id = `s${round}`;
      await tenant.openSession(id);
      await tenant.play(id, LATE);
      const accepted = Date.now();
      const begun = performance.now();
      const during = await running();
      const tookMs = performance.now() - begun;
      if (during.ids.includes(id)) shown++;
      else if (during.asOf >= accepted) untold.push(`${id} runs`);
      else if (tookMs < WAITED_MS) untold.push(`${id} runs, which was waited for ${tookMs} ms`);
      await tenant.cancel(id);
      const cancelled = Date.now();
      const after = await running();
      if (after.ids.includes(id) && after.asOf >= cancelled) untold.push(`${id} has ended`);
    }
    expect(untold).toEqual([]);
    // Nearly always on an idle machine; one that is busy may keep the projector from it for a tenth of a second.
    expect(shown).toBeGreaterThan(0);
  },
);

test('with a projector that stands still the answer comes all the same, and says from when it is', async () => {
  await tenant.openSession('behind');
  await running();
  projecting.pause();
  try {
    const begun = Date.now();
    await tenant.play('behind', LATE);
    const { ids, asOf } = await running();
    expect(ids).not.toContain('behind');
    expect(asOf).toBeGreaterThan(begun - 60_000);
    expect(asOf).toBeLessThanOrEqual(Date.now());
    const later = await running();
    // It does not move on while the projector does not.
    expect(later.asOf).toBe(asOf);
  } finally {
    projecting.resume();
  }
  const resumed = Date.now();
  const caughtUp = await until('the list shows it, and is of after the standstill', async () => {
    const found = await running();
    return found.ids.includes('behind') && found.asOf >= resumed && found;
  });
  expect(caughtUp.asOf).toBeLessThanOrEqual(Date.now());
  await tenant.cancel('behind');
});

/** How long a list waits for what its node has heard of. */
const HEARD_WITHIN_MS = 2_000;

/**
 * What a list has that is asked for while its read model stands still, for less time than it waits; null: it took all of
 * that time, so that it promises nothing. The server ends the standstill by itself: this process may be late.
 */
async function listedLate<T>(table: string, turn: () => Promise<void>, list: () => Promise<T>): Promise<T | null> {
  return await withConnection(await projecting.file('database-url'), async (client) => {
    await client.query(`begin; lock table ${table} in share mode`);
    await turn();
    const released = client.query('select pg_sleep(0.3); commit');
    const begun = performance.now();
    const listed = await list();
    const tookMs = performance.now() - begun;
    await released;
    return tookMs < HEARD_WITHIN_MS ? listed : null;
  });
}

/** Of the first of ten tries in which the list did not take all of its time, as on a machine that stands still. */
async function inTime<T>(attempt: (n: number) => Promise<T | null>): Promise<T> {
  for (let n = 0; n < 10; n++) {
    const found = await attempt(n);
    if (found !== null) return found;
  }
  throw new Error('no list came within the time that it waits');
}

async function wrote(sessionId: string): Promise<void> {
  const call = { name: 'write', input: { path: 'outputs/a.txt', content: 'a' } };
  const { turnId } = await tenant.play(sessionId, [{ toolCalls: [call] }, { text: 'done' }]);
  const { type } = await tenant.turnEnd(sessionId, turnId);
  expect(type).toBe('turn.completed');
}

test('who sees a turn end finds what it left in the list of artifacts', { timeout: 180_000 }, async () => {
  await tenant.saveAgent('coder', { sandboxTools: ['write'] });
  const found = await inTime(async (n) => {
    const sessionId = `artifacts${n}`;
    await tenant.openSession(sessionId, { agentId: 'coder' });
    return await listedLate(
      `${SCHEMAS.artifacts}.artifact`,
      async () => await wrote(sessionId),
      async () =>
        artifactList.parse((await tenant.request({ path: `/v1/artifacts?sessionId=${sessionId}` })).json).artifacts,
    );
  });
  expect(found.map(({ name, latestVersion }) => [name, latestVersion])).toEqual([['outputs', 1]]);
});

test('who sees a turn end finds what it left in the list of sandboxes', { timeout: 180_000 }, async () => {
  await tenant.saveAgent('coder', { sandboxTools: ['write'] });
  const found = await inTime(async (n) => {
    const { sandboxId } = await tenant.openSession(`sandboxes${n}`, { agentId: 'coder' });
    const files = async () => {
      const { sandboxes } = sandboxList.parse((await tenant.request({ path: '/v1/sandboxes' })).json);
      return sandboxes.find(({ id }) => id === sandboxId)?.files.count ?? 'not listed';
    };
    await until('the sandbox is listed, and empty', async () => (await files()) === 0);
    return await listedLate(`${SCHEMAS.sandboxes}.sandbox`, async () => await wrote(`sandboxes${n}`), files);
  });
  expect(found).toBe(1);
});

test(
  'who forks a session after a turn finds what the turn left in the list of the fork',
  { timeout: 180_000 },
  async () => {
    await tenant.saveAgent('coder', { sandboxTools: ['write'] });
    const found = await inTime(async (n) => {
      const [parent, fork] = [`parent${n}`, `fork${n}`];
      await tenant.openSession(parent, { agentId: 'coder' });
      return await listedLate(
        `${SCHEMAS.sessions}.history_artifact`,
        async () => {
          await wrote(parent);
          const body = { requestId: 'r', idempotencyKey: fork, id: fork };
          const forked = await tenant.request({ method: 'POST', path: `/v1/sessions/${parent}/fork`, body });
          expect(forked.status, forked.text).toBe(201);
        },
        async () =>
          artifactList.parse((await tenant.request({ path: `/v1/artifacts?sessionId=${fork}` })).json).artifacts,
      );
    });
    expect(found.map(({ name }) => name)).toEqual(['outputs']);
  },
);

/** The shortest of up to three: a second wait, such as one for each stream, is in all of them, a machine that stands still in few. */
async function shortestMs(path: string): Promise<number> {
  let shortest = Number.POSITIVE_INFINITY;
  for (let n = 0; n < 3 && shortest >= 2 * HEARD_WITHIN_MS; n++) {
    const begun = performance.now();
    expect((await tenant.request({ path })).status, path).toBe(200);
    shortest = Math.min(shortest, performance.now() - begun);
  }
  return shortest;
}

test('lists answer with what they have while the projector stands still, each after one wait', async () => {
  await tenant.saveAgent('coder', { sandboxTools: ['write'] });
  await tenant.openSession('still', { agentId: 'coder' });
  const body = { requestId: 'r', idempotencyKey: 'still-fork', id: 'still-fork' };
  const forked = await tenant.request({ method: 'POST', path: '/v1/sessions/still/fork', body });
  expect(forked.status, forked.text).toBe(201);
  projecting.pause();
  try {
    await wrote('still');
    for (const path of ['/v1/artifacts?sessionId=still', '/v1/artifacts?sessionId=still-fork', '/v1/sandboxes'])
      expect(await shortestMs(path), path).toBeLessThan(2 * HEARD_WITHIN_MS);
  } finally {
    projecting.resume();
  }
});
