import { expect } from 'vitest';
import { isCanonical } from '#src/domain/session/canonical.ts';
import type { SessionEvent } from '#src/domain/session/events.ts';
import { hasJobs } from '#src/domain/turn/jobs.ts';
import { statusOf } from '#src/domain/turn/summary.ts';
import type { Scenario } from './turn-scenario.ts';

/** What holds for every session, whatever has happened to it. */

const ENDS = new Set<SessionEvent['type']>(['turn.completed', 'turn.failed', 'turn.cancelled']);
const turnIdOf = (event: SessionEvent): string | null => ('turnId' in event.data ? event.data.turnId : null);

/** Of each turn: one end, and nothing that a reader sees after it. */
export function checkEnds({ events, session }: Scenario): void {
  const open = new Set([session.turn?.turnId, ...session.queue.map(({ turnId }) => turnId)]);
  for (const [turnId, mine] of Map.groupBy(events, turnIdOf)) {
    if (turnId === null) continue;
    const ends = mine.filter(({ type }) => ENDS.has(type));
    expect(ends.length, `ends of ${turnId}`).toBe(open.has(turnId) ? 0 : 1);
    const after = mine.slice(mine.findIndex(({ type }) => ENDS.has(type)) + 1);
    if (ends.length > 0) expect(after.filter(({ type }) => isCanonical(type))).toEqual([]);
  }
}

/** Every action and interaction is closed once, at the latest with its turn; a generation is claimed once and ends once. */
export function checkWork({ events, session }: Scenario): void {
  const claimed = new Set<string>();
  const closed = new Set<string>();
  for (const { type, data } of events) {
    if (type === 'action.claimed') {
      const claim = `${data.actionId}.${data.generation}`;
      expect(claimed.has(claim), `${claim} is claimed twice`).toBe(false);
      claimed.add(claim);
    }
    if (type === 'action.completed' || type === 'action.withdrawn') {
      expect(closed.has(data.actionId), `${data.actionId} ends twice`).toBe(false);
      closed.add(data.actionId);
    }
    if (type === 'action.pending') expect(closed.has(data.actionId), 'an action that is over is offered').toBe(false);
  }
  if (session.turn === null) {
    const offered = events.flatMap(({ type, data }) => (type === 'action.pending' ? [data.actionId] : []));
    expect(offered.filter((id) => !closed.has(id))).toEqual([]);
  }
}

/** Every model call that was asked ends once. */
export function checkCalls({ events, session }: Scenario): void {
  const open = new Set<string>();
  for (const { type, data } of events) {
    if (type === 'effect.uncertain' && data.kind !== 'model') continue;
    if (type === 'model.requested') open.add(data.callId);
    if (
      type === 'model.completed' ||
      type === 'model.failed' ||
      type === 'model.withheld' ||
      type === 'effect.uncertain'
    ) {
      expect(open.delete(data.callId), `${data.callId} ended without being asked`).toBe(true);
    }
  }
  const pending = Object.values(session.turn?.threads ?? {}).flatMap(({ pending: call }) => call?.callId ?? []);
  expect([...open].toSorted()).toEqual(pending.toSorted());
}

/** Attempts at calls of servers, by effect, as far as a history tells them. */
class McpAttempts {
  readonly open = new Map<string, { callId: string; repeatable: boolean }>();
  readonly #ended = new Set<string>();

  see({ type, data }: SessionEvent): void {
    if (type === 'mcp.requested') this.#begin(data);
    if (type === 'mcp.held') this.#end(data.effectId);
    if (type === 'effect.uncertain' && data.kind === 'mcp') this.#doubt(data);
    if (type === 'mcp.repeated') this.#repeat(data);
    if (type === 'mcp.withdrawn') expect(this.open.delete(data.effectId), `${data.effectId} is open`).toBe(true);
    if (type === 'action.completed' && data.kind === 'mcp') this.open.delete(this.#of(data.callId) ?? '');
  }

  #of(callId: string): string | undefined {
    return [...this.open].find(([, call]) => call.callId === callId)?.[0];
  }

  #begin(call: { effectId: string; callId: string; repeatable: boolean }): void {
    expect(this.#of(call.callId), 'a call is made twice').toBeUndefined();
    this.open.set(call.effectId, call);
  }

  #end(effectId: string): void {
    expect(this.open.has(effectId) && !this.#ended.has(effectId), `${effectId} is under way`).toBe(true);
    this.#ended.add(effectId);
  }

  #doubt({ effectId, reason }: { effectId: string; reason: string }): void {
    if (reason === 'lost') expect(this.open.get(effectId)?.repeatable).toBe(false);
    this.#end(effectId);
    if (reason === 'cancelled') this.open.delete(effectId);
  }

  #repeat({ callId, effectId }: { callId: string; effectId: string }): void {
    const before = this.#of(callId) ?? 'none';
    expect(this.#ended.has(before), `${effectId} follows an attempt that has ended`).toBe(true);
    const call = this.open.get(before);
    this.open.delete(before);
    if (call !== undefined) this.open.set(effectId, call);
  }
}

/**
 * Every attempt at a call of a server ends once, and a call that may not be repeated has another one only after a
 * person, or the server, has said what became of the one before.
 */
export function checkMcpCalls({ events, session }: Scenario): void {
  const attempts = new McpAttempts();
  for (const event of events) attempts.see(event);
  const threads = Object.values(session.turn?.threads ?? {});
  const left = threads.flatMap(({ mcp }) => mcp.calls.map(({ effectId }) => effectId));
  expect([...attempts.open.keys()].toSorted()).toEqual(left.toSorted());
}

/** Nobody is forgotten: what has something to run is held or wanted, and what waits says what it waits for. */
export function checkRest({ session: { turn } }: Scenario): void {
  if (turn === null) return;
  expect(hasJobs(turn)).toBe(turn.claim !== null || turn.wanted || turn.restsUntil !== null);
  if (turn.restsUntil !== null) expect([turn.claim, turn.wanted]).toEqual([null, false]);
  if (statusOf(turn) === 'waiting') expect(Object.keys(turn.work.actions).length).toBeGreaterThan(0);
}

const CALL_ENDS: readonly SessionEvent['type'][] = ['model.completed', 'model.failed', 'effect.uncertain'];

/** A turn that has ended is a whole tree of spans: one of its own, and one for each call of a model or tool. */
export function checkSpans({ events, spans }: Scenario): void {
  const started = new Set(events.flatMap(({ type, data }) => (type === 'turn.started' ? [data.turnId] : [])));
  for (const [turnId, mine] of Map.groupBy(events, turnIdOf)) {
    if (turnId === null || !started.has(turnId) || !mine.some(({ type }) => ENDS.has(type))) continue;
    const of = spans.filter((span) => span.turnId === turnId);
    const keys = new Set(of.map(({ key }) => key));
    expect(of.filter(({ parent }) => parent === null).map(({ key }) => key)).toEqual(['turn']);
    expect(of.filter(({ parent }) => parent !== null && !keys.has(parent))).toEqual([]);
    expect(of.filter(({ startedAt, endedAt }) => endedAt < startedAt)).toEqual([]);
    const count = (name: string): number => of.filter((span) => span.name.startsWith(name)).length;
    const ofModels = mine.filter((event) => event.type !== 'effect.uncertain' || event.data.kind === 'model');
    expect(count('chat ')).toBe(ofModels.filter(({ type }) => CALL_ENDS.includes(type)).length);
    const called = mine.flatMap(({ type, data }) => (type === 'message.assistant' ? data.toolCalls : [])).length;
    const delegated = mine.filter(({ type }) => type === 'delegation.started').length;
    // A turn that goes on with a failed one may open calls of its last step.
    const goesOn = mine.some(({ type, data }) => type === 'turn.started' && data.retryOf !== undefined);
    if (goesOn) expect(count('execute_tool ')).toBeGreaterThanOrEqual(called - delegated);
    else expect(count('execute_tool ')).toBe(called - delegated);
    expect(count('invoke_agent ')).toBe(1 + delegated);
  }
}

/** What a turn that goes on with a failed one may not do again: a message, a step that was recorded, a tool that may have run. */
export function checkRetries({ events }: Scenario): void {
  for (const { type, data } of events) {
    if (type !== 'turn.started' || data.retryOf === undefined) continue;
    const { turnId, retryOf } = data;
    const of = (id: string) => events.filter((event) => turnIdOf(event) === id);
    expect(
      of(retryOf)
        .filter((event) => ENDS.has(event.type))
        .map((event) => event.type),
    ).toEqual(['turn.failed']);
    expect(of(turnId)[0]).toMatchObject({ type: 'command.retry', data: { turnId, retryOf } });
    expect(of(turnId).some((event) => event.type === 'command.message')).toBe(false);
    const claimed = new Set(of(retryOf).flatMap((one) => (one.type === 'action.claimed' ? [one.data.actionId] : [])));
    const begun = of(retryOf).flatMap((one) =>
      one.type === 'action.pending' && one.data.kind === 'tool' && claimed.has(one.data.actionId)
        ? [one.data.callId]
        : [],
    );
    // Ids of calls are the model's, so only what comes before its next answer is of the step that failed.
    const answered = of(turnId).findIndex((one) => one.type === 'message.assistant');
    const before = of(turnId).slice(0, answered < 0 ? undefined : answered);
    const again = before.flatMap((one) => (one.type === 'action.pending' ? [one.data.callId] : []));
    expect(again.filter((callId) => begun.includes(callId) && !isOlder(of(retryOf), callId))).toEqual([]);
  }
}

/** Whether a call of that id belongs to a step before the last one of a turn. */
function isOlder(events: readonly SessionEvent[], callId: string): boolean {
  const last = events.findLastIndex(({ type }) => type === 'message.assistant');
  return events.slice(0, last).some(({ type, data }) => type === 'action.pending' && data.callId === callId);
}
