import type { CacheFigures, Repository } from '../commands/repository.ts';
import { addMessage, continueJoined, emptyConversation, joinConversations } from '../domain/turn/conversation.ts';
import type { Conversation } from '../domain/turn/conversation.ts';
import type { SessionEvent } from '../domain/session/events.ts';
import type { Ancestor } from '../domain/session/fork-events.ts';
import type { OpenSession, SessionState } from '../domain/session/state.ts';
import { WeightedLru } from '../lib/lru.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';

/** A conversation that is kept. `own`: the part of it that the session has said itself; absent: it is inherited as a whole. */
interface Kept {
  readonly whole: Conversation;
  readonly own?: Conversation;
}

/**
 * What the model of a fork is shown: the conversation of its ancestors up to where they were forked, then its own. The
 * inherited part never changes, so each node that runs the fork folds it once and keeps it while there is room; forks
 * at the same point share it. It is not copied into the fork (docs/decisions/0013). The two are joined once; what the fork
 * says further is added.
 */
export class InheritedConversations {
  readonly #sessions: Pick<Repository<SessionState, SessionEvent>, 'upTo'>;
  readonly #kept: WeightedLru<Kept>;
  #hits = 0;
  #misses = 0;

  /** @param keptBytes upper bound of what is kept, by a rough estimate */
  constructor(sessions: Pick<Repository<SessionState, SessionEvent>, 'upTo'>, keptBytes: number) {
    this.#sessions = sessions;
    this.#kept = new WeightedLru(keptBytes);
  }

  get cacheFigures(): CacheFigures {
    return { entries: this.#kept.size, bytes: this.#kept.weight, hits: this.#hits, misses: this.#misses };
  }

  /**
   * The whole conversation of a session.
   * @throws UnavailableError (streams) when an inherited part has to be read and the log does not answer
   */
  async of(ref: AggregateRef, session: OpenSession): Promise<Conversation> {
    if (!session.inherits || session.origin === null) return session.conversation;
    const { ancestry } = session.origin;
    const { conversation: own } = session;
    // Another session that had this id may have been forked elsewhere.
    const key = `${refKey(ref)} after ${pointOf(ancestry.at(-1))}`;
    const known = this.#kept.get(key);
    const continued = known?.own === undefined ? null : continueJoined(known.whole, known.own, own);
    if (continued !== null) this.#hits++;
    const whole = continued ?? (await this.#join(ref, ancestry, own));
    if (whole !== known?.whole) this.#keep(key, { whole, own });
    return whole;
  }

  async #join(ref: AggregateRef, ancestry: readonly Ancestor[], own: Conversation): Promise<Conversation> {
    const inherited = await this.#upTo(ref, ancestry);
    return inherited.messages.length === 0 ? own : joinConversations(inherited, own);
  }

  #keep(key: string, kept: Kept): void {
    this.#kept.set(key, kept, 500 + kept.whole.chars * 2);
  }

  /** Forgets everything of a tenant: what it was folded from has been erased. */
  forget(tenant: string): void {
    const prefix = refKey({ tenant, kind: 'session', id: '' });
    this.#kept.deleteWhere((key) => key.startsWith(prefix));
  }

  /** Of a whole chain, including its last part. A part whose model had been given a summary needs nothing before it. */
  async #upTo(ref: AggregateRef, ancestry: readonly Ancestor[]): Promise<Conversation> {
    const newest = ancestry.at(-1);
    if (newest === undefined) return emptyConversation;
    const ancestor: AggregateRef = { ...ref, id: newest.sessionId };
    const key = `${refKey(ancestor)} up to ${pointOf(newest)}`;
    const known = this.#kept.get(key);
    if (known !== undefined) {
      this.#hits++;
      return known.whole;
    }
    this.#misses++;
    const state = await this.#sessions.upTo(ancestor, newest);
    if (state.status === 'absent') return emptyConversation;
    // Messages that waited for their turns are part of the history: the fork's model sees them too.
    const own = state.queue.reduce((so, { text, files }) => addMessage(so, text, files), state.conversation);
    const before = state.inherits ? await this.#upTo(ref, ancestry.slice(0, -1)) : emptyConversation;
    const whole = before.messages.length === 0 ? own : joinConversations(before, own);
    this.#keep(key, { whole });
    return whole;
  }
}

function pointOf(ancestor: Ancestor | undefined): string {
  return ancestor === undefined ? '' : `${ancestor.sessionId} ${ancestor.position} ${ancestor.index}`;
}
