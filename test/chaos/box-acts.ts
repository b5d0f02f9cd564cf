import type { SentFile } from './checks.ts';

/** What clients do to sandboxes beside the turns that work in them, and what has to hold of it, as pure comparisons. */

/** An event of a sandbox's log. */
export interface BoxEvent {
  readonly type: string;
  readonly data: Readonly<Record<string, unknown>>;
  /** When its commit was stored, µs since 1970, by which it is before or after one of a session, which may be in another stream. */
  readonly storedAt: number;
}

export interface BoxAct {
  readonly sandboxId: string;
  readonly what: 'put' | 'reset' | 'stop' | 'delete';
  /** Of the file that is put there; otherwise nothing. */
  readonly path: string;
  /** No other act puts as many bytes: by these the log's counts name it. */
  readonly text: string;
  readonly outcome: SentFile['outcome'];
  readonly begunMs: number;
  readonly endedMs: number;
}

export interface Problem {
  readonly kind: 'lost' | 'doubled' | 'wrong';
  readonly what: string;
}

const PUT = 'put/';

/** The path and the text of the nth file that clients put anywhere. */
export function putFile(n: number): Pick<BoxAct, 'path' | 'text'> {
  return { path: `${PUT}${n}`, text: 'x'.repeat(n) };
}

export function isPut(path: string): boolean {
  return path.startsWith(PUT);
}

/** The act that put so many bytes there; one that was refused did not. */
export function putOf(acts: readonly BoxAct[], bytes: number): BoxAct | undefined {
  return acts.find(({ what, text, outcome }) => what === 'put' && text.length === bytes && outcome !== 'refused');
}

/** Each file that a client was told is there has a record. */
export function checkRecorded(acts: readonly BoxAct[], recorded: ReadonlySet<BoxAct>): Problem[] {
  return acts
    .filter((act) => act.what === 'put' && act.outcome === 'accepted' && !recorded.has(act))
    .map(({ path }) => ({ kind: 'lost', what: `${path} was put there, and no record has it` }));
}

const RECORDED = { reset: 'sandbox.reset', delete: 'sandbox.deleted', stop: 'sandbox.stopped' } as const;

/** Of what is in the log by itself: what was accepted is there, and nothing that nobody asked for. To stop twice is to stop once. */
export function checkActs(events: readonly BoxEvent[], acts: readonly BoxAct[]): Problem[] {
  const problems: Problem[] = [];
  for (const [what, type] of Object.entries(RECORDED)) {
    const recorded = events.filter((event) => event.type === type).length;
    const of = (outcome: BoxAct['outcome']) =>
      acts.filter((act) => act.what === what && act.outcome === outcome).length;
    const [accepted, unknown] = [of('accepted'), of('unknown')];
    if (recorded > accepted + unknown)
      problems.push({ kind: 'doubled', what: `${recorded} records of ${type} for ${accepted + unknown} requests` });
    if (recorded < accepted && what !== 'stop')
      problems.push({ kind: 'lost', what: `${recorded} records of ${type}, and ${accepted} were accepted` });
  }
  const deleted = events.findIndex(({ type }) => type === 'sandbox.deleted');
  const after = deleted < 0 ? [] : events.slice(deleted + 1);
  for (const { type } of after) problems.push({ kind: 'wrong', what: `${type} after it was deleted` });
  return [...problems, ...checkStarts(events)];
}

/** Each stop and start of a pod has a higher number than the one before. */
function checkStarts(events: readonly BoxEvent[]): Problem[] {
  const epochs = events
    .filter(({ type }) => type === 'sandbox.stopped' || type === 'sandbox.started')
    .map(({ data }) => Number(data['hostEpoch']));
  const isRising = epochs.every((epoch, n) => epoch > (epochs[n - 1] ?? 0));
  return isRising ? [] : [{ kind: 'wrong', what: `its starts and stops have the numbers ${epochs.join()}` }];
}

/**
 * Files that clients put on a volume, of which the log knows nothing: one that was accepted is there, unless it was removed
 * later; one that was refused, or removed after it had been put, is not.
 */
export function checkPuts(acts: readonly BoxAct[], files: ReadonlyMap<string, string>): Problem[] {
  const problems: Problem[] = [];
  const removals = acts.filter(({ what }) => what === 'reset' || what === 'delete');
  for (const { path, text, outcome, begunMs, endedMs } of acts.filter(({ what }) => what === 'put')) {
    const there = files.get(path);
    const mayBeRemoved = removals.some((one) => one.outcome !== 'refused' && one.endedMs > begunMs);
    const isRemoved = removals.some((one) => one.outcome === 'accepted' && one.begunMs > endedMs);
    if (there === undefined && outcome === 'accepted' && !mayBeRemoved)
      problems.push({ kind: 'lost', what: `${path} was put there, and is not` });
    if (there === undefined) continue;
    if (outcome === 'refused') problems.push({ kind: 'wrong', what: `${path} is there, and was refused` });
    if (outcome === 'accepted' && isRemoved)
      problems.push({ kind: 'wrong', what: `${path} is there after it was removed` });
    if (there !== text) problems.push({ kind: 'wrong', what: `${path} has ${there.length} bytes, not ${text.length}` });
  }
  for (const path of files.keys())
    if (isPut(path) && !acts.some((act) => act.path === path))
      problems.push({ kind: 'wrong', what: `${path} is there, and no client put it there` });
  return problems;
}
