import { createHash } from 'node:crypto';
import { canonicalJson } from '#src/lib/canonical-json.ts';
import { checkActs, checkPuts, checkRecorded, isPut, putOf } from './box-acts.ts';
import type { BoxAct, BoxEvent, Problem } from './box-acts.ts';
import { markIn } from './boxes.ts';
import type { BoxKind } from './boxes.ts';
import type { LoggedEvent } from './checks.ts';

/** What has to hold of sandboxes and of what their commands have left, as pure comparisons. */

/** A call as its session has it. */
export interface BoxCall {
  readonly sessionId: string;
  readonly tool: string;
  readonly mark: string;
  /** Of a file that it writes as a whole; null: it adds to the log. */
  readonly path: string | null;
  /** What the model was given; null: nothing, as its turn had ended. */
  outcome: unknown;
}

export interface Box {
  readonly sandboxId: string;
  readonly kind: BoxKind;
  readonly events: readonly BoxEvent[];
  /** What it has at the end, as text by path. */
  readonly files: ReadonlyMap<string, string>;
}

/** What sessions say. */
export interface BoxSessions {
  /** By `callKey`. */
  readonly calls: ReadonlyMap<string, BoxCall>;
  /** When the ends of turns were stored, µs: positions are those of a stream, and a session is often in another one. */
  readonly turnEnds: ReadonlyMap<string, number>;
  /** What clients did to sandboxes, and were told. */
  readonly acts: readonly BoxAct[];
}

interface BoxVerdict {
  readonly lost: number;
  readonly doubled: number;
  /** Calls that have succeeded. */
  readonly calls: number;
  readonly problems: readonly string[];
}

export function callKey(turnId: unknown, callId: unknown): string {
  return JSON.stringify([turnId, callId]);
}

/** The calls that a session's model made of its sandbox. */
export function callsOfBoxes(sessionId: string, events: readonly LoggedEvent[]): ReadonlyMap<string, BoxCall> {
  const calls = new Map<string, BoxCall>();
  for (const { type, data } of events) {
    const key = callKey(data['turnId'], data['callId']);
    if (type === 'sandbox.requested') {
      const { input, name } = data;
      const path: unknown = Reflect.get(Object(input), 'path');
      const shown = typeof path === 'string' ? path : null;
      calls.set(key, { sessionId, tool: String(name), mark: markIn(input), path: shown, outcome: null });
    }
    const call = calls.get(key);
    if (call !== undefined && type === 'action.completed') call.outcome = data['outcome'];
  }
  return calls;
}

/**
 * Every sandbox, those of parents before those of forks: one turn at a time had it, each call has one end, which its
 * session was told, and the files are what these calls make of them.
 */
export function checkBoxes(boxes: readonly Box[], sessions: BoxSessions): BoxVerdict {
  const total = { lost: 0, doubled: 0, calls: 0 };
  const problems: string[] = [];
  const starts = new Map<string, Files>();
  const ended = new Set<string>();
  const created = (box: Box): number => box.events[0]?.storedAt ?? 0;
  for (const box of boxes.toSorted((a, b) => created(a) - created(b))) {
    const acts = sessions.acts.filter(({ sandboxId }) => sandboxId === box.sandboxId);
    const found = [
      ...checkHolds(box.events, sessions.turnEnds),
      ...checkEnds(box.events, sessions.calls, ended),
      ...checkActs(box.events, acts),
      ...(box.kind === 'virtual' ? checkFolded(box, { calls: sessions.calls, starts, acts }) : []),
      ...(box.kind === 'pod' ? checkPod(box, sessions.calls, acts) : []),
    ];
    for (const { kind, what } of found) {
      if (kind !== 'wrong') total[kind]++;
      problems.push(`${box.kind} sandbox ${box.sandboxId}: ${what}`);
    }
    total.calls += box.events.filter(succeeded).length;
  }
  for (const [key, { sessionId, outcome }] of sessions.calls) {
    if (isCompleted(outcome) && !ended.has(key)) {
      total.lost++;
      problems.push(`${sessionId}: call ${key} has succeeded, and no sandbox has it`);
    }
  }
  return { ...total, problems };
}

const wrong = (what: string): Problem => ({ kind: 'wrong', what });

/** Nobody takes it from a turn that has not ended, nobody gives it back before, and calls are of the turn that has it. */
function checkHolds(events: readonly BoxEvent[], turnEnds: BoxSessions['turnEnds']): Problem[] {
  const problems: Problem[] = [];
  let holder: Readonly<Record<string, unknown>> | null = null;
  const isOver = (at: number): boolean => (turnEnds.get(String(holder?.['turnId'])) ?? Infinity) < at;
  let epoch = 0;
  for (const { type, data, storedAt } of events) {
    const of = `turn ${String(data['turnId'])}`;
    if (type === 'sandbox.held') {
      if (isTaken(holder, data) && !isOver(storedAt))
        problems.push(wrong(`${of} takes it from ${String(holder?.['turnId'])}`));
      if (Number(data['epoch']) <= epoch)
        problems.push(wrong(`${of} has epoch ${String(data['epoch'])} after ${epoch}`));
      holder = data;
      epoch = Number(data['epoch']);
    }
    problems.push(...checkUndisturbed(type, holder, isOver(storedAt)));
    if (type === 'sandbox.released') {
      if (!isOver(storedAt)) problems.push(wrong(`${String(holder?.['turnId'])} gives it back before its end`));
      holder = null;
    }
    if (type !== 'sandbox.called' && type !== 'sandbox.executed') continue;
    if (holder?.['turnId'] !== data['turnId'] || epoch !== data['epoch'])
      problems.push(wrong(`${of} has ${type} with epoch ${String(data['epoch'])} without having the sandbox`));
  }
  return problems;
}

const BY_CLIENTS = new Set(['sandbox.written', 'sandbox.reset', 'sandbox.stopped', 'sandbox.deleted']);

/** A client changes nothing under a turn that has not ended. */
function checkUndisturbed(type: string, holder: BoxEvent['data'] | null, isOver: boolean): Problem[] {
  if (holder === null || isOver || !BY_CLIENTS.has(type)) return [];
  return [wrong(`a client has ${type} while ${String(holder['turnId'])} has it`)];
}

function isTaken(holder: BoxEvent['data'] | null, by: BoxEvent['data']): boolean {
  return holder !== null && holder['turnId'] !== by['turnId'];
}

/** Each call has one end, of a call that a session asked for, and the session was told that end. */
function checkEnds(events: readonly BoxEvent[], calls: BoxSessions['calls'], ended: Set<string>): Problem[] {
  const problems: Problem[] = [];
  for (const { type, data } of events) {
    if (type !== 'sandbox.executed') continue;
    const key = callKey(data['turnId'], data['callId']);
    const call = calls.get(key);
    if (ended.has(key)) problems.push({ kind: 'doubled', what: `call ${key} has two ends` });
    ended.add(key);
    if (call === undefined) problems.push(wrong(`call ${key} was not asked for`));
    if (call === undefined || call.outcome === null) continue;
    const [told, there] = [canonicalJson(call.outcome), canonicalJson(data['outcome'])];
    if (told !== there) problems.push(wrong(`call ${key} ended with ${there}, and its session was told ${told}`));
  }
  return problems;
}

function isCompleted(outcome: unknown): boolean {
  return Reflect.get(Object(outcome), 'kind') === 'completed';
}

/** With everything that it should have left. */
function succeeded({ type, data }: BoxEvent): boolean {
  const { exitCode = 0 } = Object(outputOf(data)) as { exitCode?: unknown };
  return type === 'sandbox.executed' && isCompleted(data['outcome']) && exitCode === 0;
}

function outputOf(data: BoxEvent['data']): unknown {
  return Reflect.get(Object(data['outcome']), 'output');
}

/** The files that calls make, one after the other. */
class Files {
  readonly lines: readonly string[];
  readonly notes: ReadonlyMap<string, string>;

  constructor(lines: readonly string[] = [], notes: ReadonlyMap<string, string> = new Map()) {
    [this.lines, this.notes] = [lines, notes];
  }

  after({ mark, path }: BoxCall): Files {
    if (path !== null) return new Files(this.lines, new Map([...this.notes, [path, mark]]));
    return new Files([...this.lines, `b ${mark}\n`, `e ${mark}\n`], this.notes);
  }

  with({ path, text }: BoxAct): Files {
    return new Files(this.lines, new Map([...this.notes, [path, text]]));
  }

  get bytes(): number {
    return [...this.all().values()].reduce((sum, { length }) => sum + length, 0);
  }

  all(): ReadonlyMap<string, string> {
    return this.lines.length === 0 ? this.notes : new Map([...this.notes, ['log', this.lines.join('')]]);
  }
}

/** What a command says of the log after it. */
function said(mark: string, lines: readonly string[]): string {
  const sha256 = createHash('sha256').update(lines.join('')).digest('hex');
  return `${mark} ${lines.length} ${sha256}\n`;
}

interface Folding extends Pick<BoxSessions, 'calls' | 'acts'> {
  /** What manifests stand for. */
  readonly starts: Map<string, Files>;
}

/** Of files that are history: what each call found and left, and what is there at the end. */
function checkFolded({ events, files: there }: Box, { calls, starts, acts }: Folding): Problem[] {
  const problems: Problem[] = [];
  const put = new Set<BoxAct>();
  let files = new Files();
  for (const event of events) {
    const { type, data } = event;
    const manifest = String(Reflect.get(Object(data['files']), 'manifest'));
    if (type === 'sandbox.created' && data['files'] !== null) {
      const start = starts.get(manifest);
      if (start === undefined) problems.push(wrong(`it begins with ${manifest}, which nobody made`));
      files = start ?? files;
    }
    files = afterClient(event, files, { acts, starts, put, problems });
    if (type !== 'sandbox.executed') continue;
    const call = calls.get(callKey(data['turnId'], data['callId']));
    if (call === undefined || !succeeded(event)) {
      if (data['files'] !== null) problems.push(wrong(`a call changed files: ${canonicalJson(data)}`));
      continue;
    }
    files = files.after(call);
    starts.set(manifest, files);
    problems.push(...checkCounts(data['files'], files, call.mark));
    const output = Reflect.get(Object(outputOf(data)), 'stdout');
    const right = said(call.mark, files.lines);
    if (call.path === null && output !== right) problems.push(wrong(`a command said ${String(output)}, not ${right}`));
  }
  return [...problems, ...checkRecorded(acts, put), ...checkThere(files.all(), there)];
}

interface Clients extends Pick<Folding, 'acts' | 'starts'> {
  /** Acts that the log has. */
  readonly put: Set<BoxAct>;
  readonly problems: Problem[];
}

/** The files after an event, if it was a client that changed them. */
function afterClient({ type, data }: BoxEvent, files: Files, { acts, starts, put, problems }: Clients): Files {
  if (type === 'sandbox.reset' || type === 'sandbox.deleted') return new Files();
  if (type !== 'sandbox.written') return files;
  const { manifest, bytes } = Object(data['files']) as Record<string, unknown>;
  const added = Number(bytes) - files.bytes;
  const act = putOf(acts, added);
  if (act === undefined) {
    problems.push(wrong(`a client has put ${added} bytes there, and none did`));
    return files;
  }
  const after = files.with(act);
  put.add(act);
  starts.set(String(manifest), after);
  return after;
}

/** What a manifest counts. */
function checkCounts(recorded: unknown, files: Files, mark: string): Problem[] {
  const sizes = [...files.all().values()].map(({ length }) => length);
  const { files: count, bytes } = Object(recorded) as Record<string, unknown>;
  const isRight = count === sizes.length && bytes === sizes.reduce((sum, size) => sum + size, 0);
  return isRight ? [] : [wrong(`after ${mark} it has ${canonicalJson(recorded)}, not files of ${sizes.join()} bytes`)];
}

function checkThere(wanted: ReadonlyMap<string, string>, there: Box['files']): Problem[] {
  const problems: Problem[] = [];
  for (const path of new Set([...wanted.keys(), ...there.keys()])) {
    if (wanted.get(path) === there.get(path)) continue;
    const kind = there.has(path) ? 'wrong' : 'lost';
    problems.push({ kind, what: `${path} is ${there.get(path)}, the history makes it ${wanted.get(path)}` });
  }
  return problems;
}

/** A call of a pod that was to be made. */
interface Made {
  readonly call: BoxCall;
  readonly output: unknown;
  readonly isCertain: boolean;
}

/**
 * Of files on a volume: what has succeeded is there once and whole, what is not known to have succeeded at most once, in
 * the order in which the calls began, and never between the two lines of another.
 */
function checkPod({ events: all, files }: Box, calls: BoxSessions['calls'], acts: readonly BoxAct[]): Problem[] {
  // What was before a reset was on another volume.
  const events = all.slice(all.findLastIndex(({ type }) => type === 'sandbox.reset' || type === 'sandbox.deleted') + 1);
  const ends = new Map<string, BoxEvent>();
  for (const event of events)
    if (event.type === 'sandbox.executed') ends.set(callKey(event.data['turnId'], event.data['callId']), event);
  const begun = new Set<string>();
  for (const { type, data } of events)
    if (type === 'sandbox.called') begun.add(callKey(data['turnId'], data['callId']));
  const problems: Problem[] = [];
  const made = [...begun].flatMap((key): Made[] => {
    const [call, end] = [calls.get(key), ends.get(key)];
    if (call === undefined) problems.push(wrong(`call ${key} began, and was not asked for`));
    const isCertain = end !== undefined && succeeded(end);
    return call === undefined ? [] : [{ call, isCertain, output: end === undefined ? null : outputOf(end.data) }];
  });
  const appended = made.filter(({ call }) => call.path === null);
  const own = new Map([...files].filter(([path]) => !isPut(path)));
  return [
    ...problems,
    ...checkLines(appended, linesOf(files.get('log') ?? '')),
    ...checkNotes(made, own),
    ...checkPuts(acts, files),
  ];
}

function linesOf(text: string): string[] {
  return text.split(/(?<=\n)/);
}

function checkLines(made: readonly Made[], lines: readonly string[]): Problem[] {
  const problems: Problem[] = [];
  let at = 0;
  for (const { call, isCertain, output } of made) {
    const [begins, ends] = [lines[at] === `b ${call.mark}\n`, lines[at + 1] === `e ${call.mark}\n`];
    if (begins) at += ends ? 2 : 1;
    if (!isCertain) continue;
    if (!begins || !ends)
      problems.push({ kind: 'lost', what: `${call.mark} has succeeded and is not at line ${at} of the log` });
    const right = said(call.mark, lines.slice(0, at));
    const told = Reflect.get(Object(output), 'stdout');
    if (told !== right) problems.push(wrong(`a command said ${String(told)}, not ${right}`));
  }
  const marks = Map.groupBy(lines, (line) => line);
  for (const [line, again] of marks)
    if (again.length > 1) problems.push({ kind: 'doubled', what: `the log has ${again.length} times ${line}` });
  if (at < lines.length && lines.join('') !== '')
    problems.push(wrong(`the log goes on with ${lines[at]} where no call left it`));
  return problems;
}

/** The newest that is known to be written, or one whose end is not known after it. */
function checkNotes(made: readonly Made[], files: Box['files']): Problem[] {
  const may = new Map<string, (string | undefined)[]>();
  for (const { call, isCertain } of made) {
    if (call.path === null) continue;
    const before = isCertain ? [] : (may.get(call.path) ?? [undefined]);
    may.set(call.path, [...before, call.mark]);
  }
  const problems: Problem[] = [];
  for (const [path, marks] of may)
    if (!marks.includes(files.get(path)))
      problems.push({ kind: 'lost', what: `${path} is ${files.get(path)}, not one of ${marks.join()}` });
  for (const path of files.keys())
    if (path !== 'log' && !may.has(path)) problems.push(wrong(`${path} is there, and no call wrote it`));
  return problems;
}
