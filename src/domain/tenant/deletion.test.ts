import { expect, test } from 'vitest';
import type { Decision } from '../kernel/decision.ts';
import { toMs, toTimestamp } from '../kernel/time.ts';
import { decideDelete, decideDrain, decideReopen, decideReopenOverdue } from './decide.ts';
import { tenantEventSchemas } from './events.ts';
import type { TenantEvent } from './events.ts';
import { DRAIN_MARGIN_MS, DRAIN_MS_MAX } from './limits.ts';
import { evolveTenant, initialTenant } from './state.ts';
import type { TenantState } from './state.ts';

const AT = '2026-01-01T00:00:00.000Z';
const AT_MS = toMs(AT);
const inSeconds = (seconds: number): string => toTimestamp(AT_MS + seconds * 1_000);
const hash = 'a'.repeat(64);

const created: TenantEvent = {
  type: 'tenant.created',
  data: {
    ...{ tenantId: 'tn_1', name: 'Acme', principalId: 'app', idempotencyKey: null },
    ...{ credentialHash: hash, studioCredentialHash: 'b'.repeat(64), bodyHash: hash },
  },
};
const drained = (seconds: number): TenantEvent => ({
  type: 'tenant.drained',
  data: { activeWork: 'drain', until: inSeconds(seconds) },
});
/** As a node of 0.12 records it. */
const drainedFor: TenantEvent = { type: 'tenant.drained', data: { activeWork: 'drain' } };
const reopened: TenantEvent = { type: 'tenant.reopened', data: { activeTurns: 1 } };
const deleting: TenantEvent = { type: 'tenant.deleting', data: { activeWork: 'drain' } };

/** Each event is a commit of its own, at positions from 1, and what the log may hold. */
function fold(...history: readonly TenantEvent[]): TenantState {
  return history.reduce((state, event, index) => {
    expect(tenantEventSchemas[event.type].parse(event.data)).toEqual(event.data);
    return evolveTenant(state, event, { at: AT, position: index + 1, index: 0 });
  }, initialTenant);
}

/** Given what has happened, when a decision is taken: what it decides. */
const given = (...history: readonly TenantEvent[]) => ({
  when: <R>(decide: (state: TenantState) => Decision<TenantEvent, R>) => {
    const decision = decide(fold(...history));
    return {
      thenIs: (expected: unknown) => expect(decision).toEqual(expected),
      thenLike: (expected: object) => expect(decision).toMatchObject(expected),
    };
  },
});

const drain = (seconds: number) => (state: TenantState) =>
  decideDrain(state, { activeWork: 'drain', until: inSeconds(seconds) });
const giveUp = (seconds: number, activeTurns: number | null) => (state: TenantState) =>
  decideReopen(state, { until: inSeconds(seconds), activeTurns });
const remove = (since: number | null) => (state: TenantState) => decideDelete(state, { activeWork: 'drain', since });
const overdueAt = (ms: number) => (state: TenantState) => decideReopenOverdue(state, AT_MS + ms);

test('a drain has an end, which the request gives it', () => {
  given(created)
    .when(drain(30))
    .thenIs({ kind: 'accepted', events: [drained(30)], reply: { deleting: false } });
  expect(fold(created, drained(30))).toMatchObject({ status: 'draining', drain: { since: 2, until: inSeconds(30) } });
  for (const after of [reopened, deleting]) expect(fold(created, drained(30), after)).toMatchObject({ drain: null });
});

test('a second request makes a drain longer, never shorter', () => {
  given(created, drained(30))
    .when(drain(30))
    .thenIs({ kind: 'unchanged', reply: { deleting: false } });
  given(created, drained(30)).when(drain(1)).thenLike({ kind: 'unchanged' });
  given(created, drained(30))
    .when(drain(60))
    .thenLike({ kind: 'accepted', events: [drained(60)] });
  expect(fold(created, drained(30), drained(60))).toMatchObject({ drain: { since: 2, until: inSeconds(60) } });
  given(created, drained(30), deleting)
    .when(drain(60))
    .thenIs({ kind: 'unchanged', reply: { deleting: true } });
  given().when(drain(60)).thenLike({ kind: 'rejected', code: 'not_found' });
});

test('who gives up opens the tenant again, unless another request still drains it', () => {
  given(created, drained(30))
    .when(giveUp(30, 2))
    .thenIs({
      kind: 'accepted',
      events: [{ type: 'tenant.reopened', data: { activeTurns: 2 } }],
      reply: { isOpen: true },
    });
  for (const other of [[drained(60)], [drained(60), drained(90)], [drained(30), deleting]]) {
    given(created, ...other)
      .when(giveUp(30, 2))
      .thenIs({ kind: 'unchanged', reply: { isOpen: false } });
  }
  given(created, drained(30), reopened)
    .when(giveUp(30, 2))
    .thenIs({ kind: 'unchanged', reply: { isOpen: true } });
  given().when(giveUp(30, 2)).thenLike({ kind: 'rejected', code: 'not_found' });
});

test('who could not count opens it too, and says that it did not', () => {
  given(created, drained(30))
    .when(giveUp(30, null))
    .thenLike({ events: [{ type: 'tenant.reopened', data: { activeTurns: 0, interrupted: true } }] });
  expect(fold(created, drained(30), { type: 'tenant.reopened', data: { activeTurns: 0, interrupted: true } })).toEqual(
    fold(created, drained(30), reopened),
  );
});

test('a deletion begins only in the drain in which its work was counted', () => {
  given(created, drained(30))
    .when(remove(2))
    .thenIs({ kind: 'accepted', events: [deleting], reply: null });
  given(created, drained(30), drained(60)).when(remove(2)).thenLike({ kind: 'accepted' });
  given(created, drained(30), deleting).when(remove(2)).thenIs({ kind: 'unchanged', reply: null });
  given(created, drained(30), reopened).when(remove(2)).thenLike({ kind: 'rejected', code: 'active_work' });
  given(created, drained(30), reopened).when(remove(null)).thenLike({ kind: 'rejected', code: 'active_work' });
  // Messages came in between.
  given(created, drained(30), reopened, drained(60))
    .when(remove(2))
    .thenLike({ kind: 'rejected', code: 'active_work' });
  given().when(remove(2)).thenLike({ kind: 'rejected', code: 'not_found' });
});

test('a drain that no request ended is ended when its time has been over for a while', () => {
  const dueMs = 30_000 + DRAIN_MARGIN_MS;
  given(created, drained(30))
    .when(overdueAt(dueMs - 1))
    .thenLike({ kind: 'unchanged' });
  given(created, drained(30))
    .when(overdueAt(dueMs))
    .thenLike({ events: [{ type: 'tenant.reopened', data: { activeTurns: 0, interrupted: true } }] });
  given(created, drained(30), drained(60)).when(overdueAt(dueMs)).thenLike({ kind: 'unchanged' });
  for (const history of [[], [created], [created, drained(30), deleting], [created, drained(30), reopened]]) {
    given(...history)
      .when(overdueAt(1e12))
      .thenIs({ kind: 'unchanged', reply: null });
  }
});

test('a drain of a node that recorded no end has the longest one', () => {
  expect(fold(created, drainedFor)).toMatchObject({ status: 'draining', drain: { until: inSeconds(600) } });
  const dueMs = DRAIN_MS_MAX + DRAIN_MARGIN_MS;
  given(created, drainedFor)
    .when(overdueAt(dueMs - 1))
    .thenLike({ kind: 'unchanged' });
  given(created, drainedFor).when(overdueAt(dueMs)).thenLike({ kind: 'accepted' });
  // Who asks for a deletion later than that ends it as its own.
  given(created, drainedFor)
    .when(drain(700))
    .thenLike({ events: [drained(700)] });
});
