import type { JetStreamManager, StoredMsg, StreamState } from '@nats-io/jetstream';
import { delay } from '../../lib/backoff.ts';
import { apiCode, deniedSubject } from './errors.ts';
import { nextMessage } from './leader-read.ts';

/** Messages that one request is meant to remove: the stream is locked meanwhile, some 3 µs each. */
const STEP = 4_000;
/** Sequences that one request covers at most, where few of them match: also then it removes no more than this. */
const SPAN_MAX = 4 * STEP;
/** Bytes of the log between a subject's first message and its last, above which a request would look into too many blocks. */
const SPAN_BYTES_MAX = 32_000_000;
/** Messages that go one by one at most: each takes 1 to 2 ms. */
const ONE_BY_ONE_MAX = 1_000;
/** A block of nats-server has 8 MB: so far apart, two messages leave out none. */
const WARMED_EACH_BYTES = 4_000_000;
/** A server forgets after two minutes what a block has of each subject. */
const WARM_MS = 60_000;
/** Subjects that are listed by their names at most. */
const NAMED_MAX = 1_000;
const LISTS_AT_ONCE = 8;
/** Between two requests, others have the stream for this many times as long as the first one took. */
const PAUSE_TIMES = 1;

interface Purged {
  readonly filter: string;
  /** Messages from this sequence on stay; null: all that are there now go. */
  readonly before: number | null;
}

/**
 * Removes what matches, in steps: a stream takes no append while it purges, and of a large tenant that is a second. What
 * arrives meanwhile stays.
 * @throws what the client throws; what was removed stays removed, and it can be repeated
 */
export async function purgeInSteps(manager: JetStreamManager, stream: string, purged: Purged): Promise<void> {
  await new Purge(manager, stream).run(purged);
}

/** What is to go: a filter with wildcards, and filters that together match the same, of which one request each lists a share. */
export interface DoomedSubjects {
  readonly filter: string;
  readonly parts: readonly string[];
}

/**
 * Removes all that matches and is there now, subject by subject in the order of their first messages. A purge by a filter
 * with wildcards visits every later block that has something of it, with the stream locked; one of a subject only blocks
 * between its first message and its last. What arrives meanwhile stays, also where another node removes the same.
 *
 * Nothing is searched for that is not there: a search looks into every block from where it begins, with the stream locked,
 * and that grows with what others have. Few subjects are found by their names, many by a search from one to the next.
 * Messages of a subject may go one by one, so their keys have to be dead: what is left in between reads as a broken history.
 * @throws what the client throws; what was removed stays removed, and it can be repeated
 */
export async function purgeSubjects(
  manager: JetStreamManager,
  stream: string,
  { filter, parts }: DoomedSubjects,
): Promise<void> {
  const { state } = await manager.streams.info(stream);
  const [first, before] = [firstOf(state), state.last_seq + 1];
  const purge = new Purge(manager, stream);
  const { names, count, messages } = await listed(manager, stream, parts);
  if (count > names.length) {
    await purge.inOrder(filter, { count, first, before });
    return;
  }
  const found: { readonly subject: string; readonly seq: number }[] = [];
  for (const subject of names) {
    const message = await nextMessage(manager, stream, { seq: first, subject });
    if (message !== null) found.push({ subject, seq: message.seq });
  }
  for (const { subject, seq } of found.toSorted((a, b) => a.seq - b.seq)) {
    await purge.subject(subject, { first: seq, before, oneByOne: messages <= ONE_BY_ONE_MAX });
  }
}

/** How many subjects and messages there are, and the names of the subjects, if these are few. */
async function listed(
  manager: JetStreamManager,
  stream: string,
  parts: readonly string[],
): Promise<{ readonly names: readonly string[]; readonly count: number; readonly messages: number }> {
  const names: string[] = [];
  let count = 0;
  let messages = 0;
  for (let from = 0; from < parts.length; from += LISTS_AT_ONCE) {
    const some = parts.slice(from, from + LISTS_AT_ONCE);
    const asked = some.map(async (part) => await manager.streams.info(stream, { subjects_filter: part }));
    for (const { state } of await Promise.all(asked)) {
      const subjects = state.subjects ?? {};
      count += Object.keys(subjects).length;
      for (const number of Object.values(subjects)) messages += number;
      if (count <= NAMED_MAX) names.push(...Object.keys(subjects));
    }
  }
  return { names, count, messages };
}

/** A stream that never had a message says 0, which no message has. */
function firstOf({ first_seq }: StreamState): number {
  return Math.max(1, first_seq);
}

/** What a sequence of the stream has of its bytes, on average. */
function bytesEach({ bytes, first_seq, last_seq }: StreamState): number {
  return bytes / (last_seq + 1 - first_seq);
}

/** Whether a subject matches a filter, in which `*` is any token and `>` at its end one or more. */
function matches(filter: string, subject: string): boolean {
  const [wanted, tokens] = [filter.split('.'), subject.split('.')];
  const isOpen = wanted.at(-1) === '>';
  if (isOpen ? tokens.length < wanted.length : tokens.length !== wanted.length) return false;
  return wanted.every((token, i) => token === '*' || token === '>' || token === tokens[i]);
}

/** Of a subject's messages, those before a sequence. */
interface Share {
  readonly first: number;
  readonly before: number;
  /** Whether they may go one by one, which takes a millisecond or two for each. */
  readonly oneByOne: boolean;
}

interface Span {
  readonly first: number;
  readonly last: number;
  /** On average. */
  readonly bytesEach: number;
}

/** Requests one after the other, with pauses in which others append; what is asked in between counts as pause. */
class Purge {
  readonly #manager: JetStreamManager;
  readonly #stream: string;
  #freeAtMs = 0;
  /** Where the blocks that were read end, and since when; in between there may be some that were not. */
  #warmed = { to: 0, sinceMs: -Infinity };

  constructor(manager: JetStreamManager, stream: string) {
    this.#manager = manager;
    this.#stream = stream;
  }

  async run({ filter, before }: Purged): Promise<void> {
    if (before !== null && before <= 1) return;
    const { state } = await this.#manager.streams.info(this.#stream);
    const first = firstOf(state);
    if (/[*>]/.test(filter)) {
      await this.#inSteps(filter, { first, from: first, before: before ?? state.last_seq + 1 });
      return;
    }
    const message = await nextMessage(this.#manager, this.#stream, { seq: first, subject: filter });
    if (message === null) return;
    // Who reads it meanwhile has all of it or none: what is left of a history in between is taken for a broken one.
    await this.subject(filter, { first: message.seq, before: before ?? state.last_seq + 1, oneByOne: false });
  }

  /** Removes subject after subject, of which there are `count`. */
  async inOrder(
    filter: string,
    { count, first, before }: { readonly count: number; readonly first: number; readonly before: number },
  ): Promise<void> {
    let from = first;
    for (let left = count; left > 0; left--) {
      const next = await this.next(filter, { from, first });
      if (next === null || next.seq >= before) return;
      from = next.seq + 1;
      await this.subject(next.subject, { first: next.seq, before, oneByOne: false });
    }
  }

  /**
   * Removes a subject's messages before a sequence; its first one is at `first`. A request looks into each block between the
   * subject's first message and its last, some 4 ms of a locked stream for each that has not been used for a while (2.15.1).
   * So where they are far apart, those blocks are read before, which locks nothing else; or, as a log may be much larger
   * than what is deleted, a few messages go one by one.
   */
  async subject(subject: string, { first, before, oneByOne }: Share): Promise<void> {
    if (before <= first) return;
    const last = await this.#manager.streams.getMessage(this.#stream, { last_by_subj: subject });
    if (last === null) return;
    const span = last.seq + 1 - first;
    if (span > STEP) {
      const { config, state } = await this.#manager.streams.info(this.#stream, { subjects_filter: subject });
      const count = state.subjects?.[subject] ?? 0;
      const isFarApart = span * bytesEach(state) > SPAN_BYTES_MAX;
      if (isFarApart && oneByOne && count <= ONE_BY_ONE_MAX && !config.deny_delete) {
        if (await this.#oneByOne(last, { count, before })) return;
      }
      if (isFarApart) await this.#warm({ first, last: last.seq, bytesEach: bytesEach(state) });
      if (count > STEP) {
        await this.#inSteps(subject, { first: firstOf(state), from: first, before });
        return;
      }
    }
    await this.#request(subject, before);
  }

  /** Has the server read the blocks of a span, but for those that it read for the subject before. */
  async #warm({ first, last, bytesEach: bytes }: Span): Promise<void> {
    if (performance.now() - this.#warmed.sinceMs > WARM_MS) this.#warmed = { to: 0, sinceMs: performance.now() };
    const step = Math.max(1, Math.floor(WARMED_EACH_BYTES / bytes));
    for (let seq = Math.max(first, this.#warmed.to); seq <= last; seq += step) {
      await this.#manager.streams.getMessage(this.#stream, { seq });
      this.#warmed.to = seq + step;
    }
  }

  /**
   * Removes those of a subject's messages that are before a sequence, the oldest first, so that what a crash leaves can be
   * found in the same way. Each says where the one before it is: the sequence that its append expected. False: not all
   * of them say it, or the server does not let them be removed so.
   */
  async #oneByOne(last: StoredMsg, { count, before }: { readonly count: number; readonly before: number }) {
    const sequences: number[] = [];
    for (let message: StoredMsg | null = last; message !== null && message.subject === last.subject;) {
      sequences.push(message.seq);
      const expected = Number(message.header.get('Nats-Expected-Last-Subject-Sequence'));
      // What says nothing is 0, as is what says that it is the first.
      if (!(expected > 0 && expected < message.seq)) break;
      message = await this.#manager.streams.getMessage(this.#stream, { seq: expected });
    }
    if (sequences.length < count) return false;
    for (const seq of sequences.toReversed()) {
      if (seq >= before) break;
      try {
        await this.#paced(async () => await this.#manager.streams.deleteMessage(this.#stream, seq, false));
      } catch (error) {
        if (deniedSubject(error) !== null) return false;
        // Another node may have been faster. The code for that is also the one for all other refusals.
        if (apiCode(error) === null || (await this.#manager.streams.getMessage(this.#stream, { seq })) !== null)
          throw error;
      }
    }
    return true;
  }

  /** Removes what matches from one sequence to before another, with as many messages a request as are meant to go. */
  async #inSteps(
    filter: string,
    { first, from: begin, before }: { readonly first: number; readonly from: number; readonly before: number },
  ): Promise<void> {
    let span = STEP;
    for (let from = begin; from < before;) {
      // What is between belongs to others.
      const next = await this.next(filter, { from, first });
      if (next === null || next.seq >= before) return;
      from = Math.min(before, next.seq + span);
      const purged = await this.#request(filter, from);
      if (purged < STEP / 2) span = Math.min(SPAN_MAX, span * 2);
      if (purged > STEP) span = STEP;
    }
  }

  /**
   * The first message of a filter at or after a sequence. A search that begins at the stream's first message visits every
   * subject that matches, with the stream locked: 13 to 160 ms of 33,000 (2.15.1). One that begins after it looks into the
   * blocks from there on.
   */
  async next(filter: string, { from, first }: { from: number; first: number }): Promise<StoredMsg | null> {
    if (from > first) return await nextMessage(this.#manager, this.#stream, { seq: from, subject: filter });
    const message = await this.#manager.streams.getMessage(this.#stream, { seq: first });
    if (message !== null && matches(filter, message.subject)) return message;
    return await nextMessage(this.#manager, this.#stream, { seq: first + 1, subject: filter });
  }

  async #request(filter: string, seq: number): Promise<number> {
    const { purged } = await this.#paced(async () => await this.#manager.streams.purge(this.#stream, { filter, seq }));
    return purged;
  }

  async #paced<T>(request: () => Promise<T>): Promise<T> {
    const pauseMs = this.#freeAtMs - performance.now();
    // Less is as long as a timer takes at least.
    if (pauseMs >= 1) await delay(pauseMs);
    const begun = performance.now();
    try {
      return await request();
    } finally {
      const end = performance.now();
      this.#freeAtMs = end + (end - begun) * PAUSE_TIMES;
    }
  }
}
