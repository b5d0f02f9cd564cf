import { afterEach, expect, test } from 'vitest';
import { decideClaim, decideHeartbeat } from '#src/domain/session/claims.ts';
import type { ActiveTurn } from '#src/domain/turn/state.ts';
import { ClaimLeases } from '#src/engine/claim-leases.ts';
import { delay } from '#src/lib/backoff.ts';
import { newId } from '#src/lib/ids.ts';
import { JetStreamKeyValue } from '#src/streams/jetstream/key-value.ts';
import { LEASES } from '#src/streams/jetstream/topology.ts';
import { newRef } from '../support/commits.ts';
import { TestModel, TestNodes } from '../support/engine.ts';
import { capturedLog } from '../support/logger.ts';
import { seededRandom } from '../support/random.ts';
import { usage } from '../support/sessions.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

const servers = useServers();
const nodes = new TestNodes();
const stops: (() => Promise<void>)[] = [];

afterEach(async () => {
  await Promise.all(stops.splice(0).map(async (stop) => await stop()));
  await nodes.end();
});

const LEASE_MS = 1_200;
/** Of a claim whose heartbeats may come late, by the clock of a machine that stands still now and then. */
const LONG_LEASE_MS = 6_000;
const AT = { tenant: newId('tn'), shard: 0 };

/** One node's knowledge of leases, on a clock that the test sets. */
async function leasesOf(
  clock: { nowMs: number },
  { hears = false, answers = (): boolean => true } = {},
): Promise<ClaimLeases> {
  const { connections, topology } = servers.log;
  const leases = new JetStreamKeyValue(connections.appends, { kv: topology.buckets.leases, ...LEASES });
  const ask = async () => {
    if (!answers()) throw new Error('the log does not answer');
    await Promise.resolve();
  };
  const { logger } = capturedLog();
  const options = { leases, clock: () => clock.nowMs, logger, leaseMs: LEASE_MS, shards: 1, ask };
  const claims = new ClaimLeases(options);
  stops.push(async () => await claims.stop());
  await claims.start();
  if (hears) claims.hear();
  return claims;
}

/** A turn as far as leases go: one action that is claimed until then. */
function turnWith(claimId: string, leaseExpiresAtMs: number): ActiveTurn {
  const claim = {
    ...{ claimId, requestId: 'r', leaseMs: LEASE_MS, timeoutAt: null },
    leaseExpiresAt: new Date(leaseExpiresAtMs).toISOString(),
  };
  return { work: { actions: { ac_1: { claim } } } } as unknown as ActiveTurn;
}

test('a heartbeat that was answered is never overtaken by an expiry, and none is answered after one', async () => {
  const random = seededRandom('leases');
  const clock = { nowMs: Date.now() };
  const [one, other] = [await leasesOf(clock, { hears: true }), await leasesOf(clock)];
  await until('somebody hears', async () => {
    clock.nowMs += 40;
    await delay(20);
    return (await other.lapsed(AT, turnWith(newId('cl'), 0))).size === 1;
  });
  let [kept, ended] = [0, 0];
  for (let round = 0; round < 150; round++) {
    const claimId = newId('cl');
    const leaseMs = clock.nowMs;
    const turn = turnWith(claimId, leaseMs);
    const hasBeaten = random.int(0, 1) === 0 ? await one.beat(AT.tenant, claimId, leaseMs) : true;
    expect(hasBeaten).toBe(true);
    const untilMs = leaseMs + LEASE_MS;
    const beat = async (): Promise<boolean> => await one.beat(AT.tenant, claimId, untilMs);
    const lapse = async (): Promise<boolean> => (await other.lapsed(AT, turn)).has(claimId);
    // One of ten times either is first for certain, whatever the machine makes of the others.
    const known = await (round % 10 === 0 ? lapse() : round % 10 === 1 ? beat() : null);
    const [beaten, lapsed] = await Promise.all([
      delay(random.int(0, 2)).then(beat),
      delay(random.int(0, 2)).then(lapse),
    ]);
    const isAsKnown = known === null || (known && (round % 10 === 0 ? lapsed : beaten));
    expect(isAsKnown, `round ${round}`).toBe(true);
    // Of the two one was first, or the expiry has found that it was not.
    expect(beaten && lapsed, `round ${round}`).toBe(false);
    expect(await one.beat(AT.tenant, claimId, untilMs)).toBe(!lapsed);
    expect((await one.lapsed(AT, turn)).has(claimId)).toBe(lapsed);
    if (lapsed) ended++;
    else kept++;
  }
  expect(Math.min(kept, ended)).toBeGreaterThan(0);
});

test('silence counts only while somebody could have heard: after an outage there is a whole period', async () => {
  const clock = { nowMs: Date.now() };
  let answers = true;
  const [hearing, deciding] = [await leasesOf(clock, { hears: true, answers: () => answers }), await leasesOf(clock)];
  const claimId = newId('cl');
  const turn = turnWith(claimId, clock.nowMs + LEASE_MS);
  const isOver = async (): Promise<boolean> => (await deciding.lapsed(AT, turn)).has(claimId);
  const heard = async (): Promise<void> => {
    const before = clock.nowMs;
    const key = `hearing.${AT.shard}`;
    await until('this moment has been heard', async () => {
      const entry = await servers.log.topology.buckets.leases.get(key);
      return entry !== null && (JSON.parse(entry.string()) as { untilMs: number }).untilMs >= before - 200;
    });
  };
  await heard();
  // The log is away for ten leases.
  answers = false;
  await delay(300);
  clock.nowMs += 10 * LEASE_MS;
  expect(await isOver()).toBe(false);
  answers = true;
  await heard();
  const backMs = clock.nowMs;
  for (const passedMs of [0, 400, 800, LEASE_MS - 1]) {
    clock.nowMs = backMs + passedMs;
    await heard();
    expect(await isOver(), `${passedMs} ms after it`).toBe(false);
  }
  clock.nowMs = backMs + LEASE_MS;
  await heard();
  expect(await isOver()).toBe(true);
  await until('the other knows', () => hearing.overMs(AT, { ...(turn.work.actions['ac_1']?.claim ?? fail()) }) === 0);
});

function fail(): never {
  throw new Error('there is a claim');
}

test('a claim lives on heartbeats that the history does not have, and ends when they do', async () => {
  const calling = { kind: 'completed', text: '', usage: usage() } as const;
  const model = new TestModel(() => ({ ...calling, toolCalls: [{ callId: 'c', name: 'find', input: {} }] }));
  const node = nodes.add(servers.log, { model });
  await node.start();
  node.dispatcher.start();
  const ref = newRef();
  await node.openSession(ref, {}, { tools: [{ name: 'find', inputSchema: {} }] });
  await node.message(ref);
  const turnNow = async () => {
    const { state } = await node.sessions.refresh(ref);
    return state.status === 'open' ? state.turn : null;
  };
  const action = await until('it is offered', async () => Object.values((await turnNow())?.work.actions ?? {})[0]);
  const { actionId, agentId } = action;
  const claimId = newId('cl');
  const claim = { actionId, agentId, requestId: 'c', claimId };
  await node.command(ref, (state, context) => decideClaim(state, claim, { ...context, leaseMs: LONG_LEASE_MS }));
  const before = (await node.events(ref)).length;
  const beginMs = Date.now();
  let untilMs = 0;
  while (Date.now() < beginMs + 1.5 * LONG_LEASE_MS) {
    untilMs = Date.now() + LONG_LEASE_MS;
    expect(await node.claims.beat(ref.tenant, claimId, untilMs)).toBe(true);
    await delay(LONG_LEASE_MS / 12);
  }
  const held = { actionId, agentId, claimId, generation: 1 };
  expect(await node.command(ref, (state, context) => decideHeartbeat(state, held, context))).toBeDefined();
  expect(await node.events(ref)).toHaveLength(before);
  await until('the silence is recorded', async () => (await node.types(ref)).includes('turn.uncertain'));
  expect(Date.now()).toBeGreaterThanOrEqual(untilMs);
  expect(await node.claims.beat(ref.tenant, claimId, Date.now() + LONG_LEASE_MS)).toBe(false);
});
