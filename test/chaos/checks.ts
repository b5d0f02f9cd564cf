/** What has to hold of a run, as pure comparisons: they are given what was seen, and count what is wrong with it. */

/** How a list that somebody saw differs from the true one. */
export interface Difference {
  /** In the true list and not seen. */
  readonly lost: number;
  /** Seen more than once. */
  readonly doubled: number;
  /** Seen before something that comes before it. */
  readonly reordered: number;
  /** Seen and not in the true list. */
  readonly invented: number;
}

export function compareOrder(truth: readonly string[], seen: readonly string[]): Difference {
  const places = new Map(truth.map((id, place) => [id, place]));
  const once = new Set(seen);
  let reordered = 0;
  let furthest = -1;
  for (const id of once) {
    const place = places.get(id);
    if (place === undefined) continue;
    if (place < furthest) reordered++;
    furthest = Math.max(furthest, place);
  }
  return {
    lost: truth.filter((id) => !once.has(id)).length,
    doubled: seen.length - once.size,
    reordered,
    invented: [...once].filter((id) => !places.has(id)).length,
  };
}

/** What a client knows of something that it sent. `unknown`: nobody ever said. */
export type Outcome =
  | { readonly kind: 'accepted'; readonly turnId: string | null; readonly cursor: string | null }
  | { readonly kind: 'refused'; readonly code: string }
  | { readonly kind: 'unknown' };

export interface Sent {
  readonly sessionId: string;
  readonly requestId: string;
  readonly outcome: Outcome;
}

/** A command as the history has it. */
export interface StoredCommand {
  readonly sessionId: string;
  readonly requestId: string;
  readonly turnId: string | null;
  readonly cursor: string;
}

export interface CommandCheck {
  readonly lost: number;
  readonly doubled: number;
  readonly problems: readonly string[];
}

/** Accepted is stored, once and where the receipt says; refused is not stored; nothing else is there. */
export function checkCommands(sent: readonly Sent[], stored: readonly StoredCommand[]): CommandCheck {
  const problems: string[] = [];
  let lost = 0;
  let doubled = 0;
  const byRequest = Map.groupBy(stored, ({ sessionId, requestId }) => JSON.stringify([sessionId, requestId]));
  for (const { sessionId, requestId, outcome } of sent) {
    const key = JSON.stringify([sessionId, requestId]);
    const found = byRequest.get(key) ?? [];
    byRequest.delete(key);
    const what = `${sessionId} ${requestId}`;
    doubled += Math.max(0, found.length - 1);
    if (found.length > 1) problems.push(`${what} is stored ${found.length} times`);
    if (outcome.kind === 'accepted' && found.length === 0) {
      lost++;
      problems.push(`${what} was accepted and is not stored`);
    }
    const [one] = found;
    if (outcome.kind === 'accepted' && one !== undefined) {
      if (one.turnId !== outcome.turnId)
        problems.push(`${what} is stored with turn ${one.turnId}, not ${outcome.turnId}`);
      if (one.cursor !== outcome.cursor) problems.push(`${what} is stored at another place than its receipt says`);
    }
    if (outcome.kind === 'refused' && one !== undefined)
      problems.push(`${what} was refused (${outcome.code}) and is stored`);
    if (outcome.kind === 'unknown') problems.push(`${what} was never settled`);
  }
  for (const key of byRequest.keys()) problems.push(`${key} is stored and nobody sent it`);
  return { lost, doubled, problems };
}

/** An event of a session's log, internal ones too. */
export interface LoggedEvent {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
  /** Readers see it. */
  readonly isCanonical: boolean;
}

/** Events of which a turn has one. */
export const TURN_ENDS: ReadonlySet<string> = new Set(['turn.completed', 'turn.failed', 'turn.cancelled']);
const CALL_ENDS = new Set(['model.completed', 'model.failed', 'model.withheld', 'effect.uncertain']);

/**
 * The laws of a session that has come to rest: every turn has one end and nothing after it, every model call that was
 * asked for has one outcome, every action is over once, and a generation is claimed once.
 */
export function checkSession(sessionId: string, events: readonly LoggedEvent[]): readonly string[] {
  return [...checkTurns(events), ...checkCalls(events), ...checkActions(events)].map((what) => `${sessionId}: ${what}`);
}

function checkTurns(events: readonly LoggedEvent[]): string[] {
  const problems: string[] = [];
  for (const [turnId, mine] of Map.groupBy(events, ({ data }) => data['turnId'])) {
    if (typeof turnId !== 'string') continue;
    const isTurn = mine.some(({ type }) => type === 'turn.started' || type === 'turn.queued');
    const ends = mine.filter(({ type }) => TURN_ENDS.has(type));
    if (!isTurn) continue;
    if (ends.length !== 1) problems.push(`turn ${turnId} has ${ends.length} ends`);
    const after = mine.slice(mine.findIndex(({ type }) => TURN_ENDS.has(type)) + 1);
    const seen = ends.length === 0 ? [] : after.filter(({ isCanonical }) => isCanonical);
    if (seen.length > 0) problems.push(`turn ${turnId} goes on after its end with ${seen[0]?.type}`);
  }
  return problems;
}

function checkCalls(events: readonly LoggedEvent[]): string[] {
  const problems: string[] = [];
  const open = new Set<unknown>();
  for (const { type, data } of events) {
    const callId = data['callId'];
    if (type === 'effect.uncertain' && data['kind'] !== 'model') continue;
    if (type === 'model.requested') {
      if (open.has(callId)) problems.push(`model call ${String(callId)} is asked for while it is under way`);
      open.add(callId);
    }
    if (CALL_ENDS.has(type) && !open.delete(callId))
      problems.push(`model call ${String(callId)} ends without being asked for`);
  }
  for (const callId of open) problems.push(`model call ${String(callId)} has no outcome`);
  return problems;
}

function checkActions(events: readonly LoggedEvent[]): string[] {
  const problems: string[] = [];
  const claims = new Set<string>();
  const offered = new Set<unknown>();
  const over = new Set<unknown>();
  for (const { type, data } of events) {
    const { actionId, generation } = data;
    if (type === 'action.pending') {
      offered.add(actionId);
      if (over.has(actionId)) problems.push(`action ${String(actionId)} is offered after its end`);
    }
    if (type === 'action.claimed') {
      const claim = `${String(actionId)}.${String(generation)}`;
      if (claims.has(claim)) problems.push(`${claim} is claimed twice`);
      claims.add(claim);
    }
    if (type === 'action.completed' || type === 'action.withdrawn') {
      if (over.has(actionId)) problems.push(`action ${String(actionId)} ends twice`);
      over.add(actionId);
    }
  }
  for (const actionId of offered) if (!over.has(actionId)) problems.push(`action ${String(actionId)} has no end`);
  return problems;
}

/** An upload, by a name that no other has. */
export interface SentFile {
  readonly name: string;
  readonly size: number;
  readonly outcome: 'accepted' | 'refused' | 'unknown';
}

export interface StoredFile {
  readonly name: string;
  readonly size: number;
}

/** An accepted file is there once and whole, a refused one is not there, and what is used is the sum of what is there. */
export function checkFiles(sent: readonly SentFile[], stored: readonly StoredFile[], usedBytes: number): CommandCheck {
  const problems: string[] = [];
  let lost = 0;
  let doubled = 0;
  const byName = Map.groupBy(stored, ({ name }) => name);
  for (const { name, size, outcome } of sent) {
    const found = byName.get(name) ?? [];
    byName.delete(name);
    if (found.length > 1) doubled += found.length - 1;
    if (found.length === 0 && outcome === 'accepted') lost++;
    if (found.length > 0 && outcome === 'refused') problems.push(`file ${name} was refused and is there`);
    for (const one of found) if (one.size !== size) problems.push(`file ${name} has ${one.size} bytes, not ${size}`);
  }
  for (const name of byName.keys()) problems.push(`file ${name} is there and nobody sent it`);
  if (lost + doubled > 0) problems.push(`${lost} files are lost, ${doubled} doubled`);
  const sum = stored.reduce((bytes, { size }) => bytes + size, 0);
  if (sum !== usedBytes) problems.push(`${usedBytes} bytes count as used, the files have ${sum}`);
  return { lost, doubled, problems };
}

/** A model call and the tokens of it that something has counted. */
export interface Counted {
  readonly callId: string;
  readonly tokens: number;
}

/**
 * The budget has counted what the ledger has, each call once and with the same tokens. Only of a call whose worker died
 * right then may it know what the ledger does not: it is told first.
 */
export function checkSpending(
  settled: readonly Counted[],
  ledger: readonly Counted[],
  lost: ReadonlySet<string>,
): readonly string[] {
  const problems: string[] = [];
  const byCall = new Map(settled.map(({ callId, tokens }) => [callId, tokens]));
  if (byCall.size < settled.length) problems.push(`${settled.length - byCall.size} calls are counted twice`);
  for (const { callId, tokens } of ledger) {
    const counted = byCall.get(callId);
    byCall.delete(callId);
    if (counted === undefined && tokens === 0) continue;
    if (counted !== tokens) problems.push(`call ${callId} has ${tokens} tokens, the budget counted ${counted}`);
  }
  for (const callId of byCall.keys()) {
    if (!lost.has(callId)) problems.push(`the budget has counted call ${callId}, which the ledger does not know`);
  }
  return problems;
}

/** A call as the provider got it. */
export interface ReceivedCall {
  /** Its number, which its answer carries as the count of its tokens. */
  readonly id: number;
  /** The turn whose message it is about; null: of a message that no history has. */
  readonly turnId: string | null;
}

/** A call as the ledger has it. */
export interface LedgerCall {
  readonly callId: string;
  readonly turnId: string;
  readonly outcome: string;
  /** The number that its answer carried; null: the ledger knows of no answer. */
  readonly answer: number | null;
}

/**
 * Every call that the provider got is one of the ledger, each its own: by the answer where the ledger has it, else by a
 * call of the same turn without one, whose worker died or whose connection broke. And every answer that the ledger has
 * was given.
 */
export function checkProvider(received: readonly ReceivedCall[], ledger: readonly LedgerCall[]): readonly string[] {
  const problems: string[] = [];
  const open = new Map(received.map(({ id, turnId }) => [id, turnId]));
  const unanswered = new Map<string | null, number>();
  for (const { callId, turnId, outcome, answer } of ledger) {
    if (answer === null) {
      if (outcome === 'completed') problems.push(`call ${callId} is completed and has nobody's answer`);
      unanswered.set(turnId, (unanswered.get(turnId) ?? 0) + 1);
      continue;
    }
    const of = open.get(answer);
    if (of === undefined) problems.push(`call ${callId} has answer ${answer}, which was not given, or to another call`);
    else if (of !== turnId) problems.push(`call ${callId} of turn ${turnId} has answer ${answer} to turn ${of}`);
    open.delete(answer);
  }
  for (const [id, turnId] of open) {
    const left = unanswered.get(turnId) ?? 0;
    if (turnId !== null && left > 0) unanswered.set(turnId, left - 1);
    else problems.push(`the provider got call ${id} of turn ${turnId}, for which no call of the ledger stands`);
  }
  return problems;
}

/** What someone has folded of a session, as text that is the same for the same fold. */
export interface SeenFold {
  readonly who: string;
  readonly sessionId: string;
  readonly fold: string;
}

/** Nobody's fold differs from the one that is made of the log right now. */
export function checkFolds(fresh: ReadonlyMap<string, string>, seen: readonly SeenFold[]): readonly string[] {
  return seen.flatMap(({ who, sessionId, fold }) => {
    const truth = fresh.get(sessionId);
    return truth === fold ? [] : [`${who} has ${sessionId} as ${fold}, the log makes it ${truth}`];
  });
}

/** What a fork inherits is the beginning of what its parent's readers see. */
export function checkInherited(id: string, inherited: readonly string[], parent: readonly string[]): readonly string[] {
  const begins = inherited.every((eventId, n) => parent[n] === eventId);
  return begins ? [] : [`${id} inherits ${inherited.length} events that are not the first of its parent`];
}

/** Turns that were paused are paused still, but for those that were answered, which have ended. */
export function checkPaused(
  made: readonly string[],
  answered: ReadonlySet<string>,
  waiting: readonly string[],
): readonly string[] {
  const problems: string[] = [];
  const there = new Set(waiting);
  if (there.size < waiting.length) problems.push(`${waiting.length - there.size} paused turns wait twice`);
  const gone = made.filter((id) => !answered.has(id) && !there.has(id));
  const back = made.filter((id) => answered.has(id) && there.has(id));
  if (gone.length > 0) problems.push(`${gone.length} paused turns do not wait any more, as that of ${gone[0]}`);
  if (back.length > 0) problems.push(`${back.length} turns wait although they were answered, as that of ${back[0]}`);
  const known = new Set(made);
  const strange = waiting.filter((id) => !known.has(id));
  if (strange.length > 0) problems.push(`${strange.length} turns wait that nobody paused, as that of ${strange[0]}`);
  return problems;
}
