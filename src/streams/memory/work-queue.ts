import { refKey } from '../subjects.ts';
import type { AggregateRef } from '../subjects.ts';
import type { WorkItem, WorkQueue } from '../work-queue.ts';
import { after, turn } from './turn.ts';

interface Offered {
  readonly ref: AggregateRef;
  deliveries: number;
  /** Of one that was delivered or given back: prevents that it is delivered again. */
  stay: () => void;
}

interface Taker {
  readonly deliver: (offered: Offered) => void;
}

/** Items in the memory of this process, for all workers that share this object. */
export class MemoryWorkQueue implements WorkQueue {
  readonly #ackWaitMs: number;
  readonly #offered = new Map<string, Offered>();
  /** Those that no taker has. */
  readonly #ready: Offered[] = [];
  readonly #takers: Taker[] = [];

  /** @param ackWaitMs after which an item that is not done with is delivered again, ms */
  constructor(ackWaitMs: number) {
    this.#ackWaitMs = ackWaitMs;
  }

  async offer(ref: AggregateRef): Promise<void> {
    const key = refKey(ref);
    if (!this.#offered.has(key)) {
      const offered = { ref, deliveries: 0, stay: () => undefined };
      this.#offered.set(key, offered);
      this.#makeReady(offered);
    }
    await turn();
  }

  async depth(): Promise<number> {
    await turn();
    return this.#offered.size;
  }

  async take(
    handle: (item: WorkItem) => void,
    { hasRoom, signal }: { hasRoom: () => Promise<void>; signal: AbortSignal },
  ): Promise<void> {
    while (!signal.aborted) {
      await hasRoom();
      const offered = await this.#next(signal);
      if (offered !== null) handle(this.#delivered(offered));
      await turn();
    }
  }

  /** Nothing is delivered any more. */
  close(): void {
    for (const { stay } of this.#offered.values()) stay();
    this.#ready.length = 0;
  }

  async #next(signal: AbortSignal): Promise<Offered | null> {
    if (signal.aborted) return null;
    const first = this.#ready.shift();
    if (first !== undefined) return first;
    return await new Promise((resolve) => {
      const end = (): void => {
        this.#takers.splice(this.#takers.indexOf(taker), 1);
        resolve(null);
      };
      const taker: Taker = {
        deliver: (offered) => {
          signal.removeEventListener('abort', end);
          resolve(offered);
        },
      };
      this.#takers.push(taker);
      signal.addEventListener('abort', end, { once: true });
    });
  }

  #delivered(offered: Offered): WorkItem {
    offered.deliveries += 1;
    const { ref, deliveries } = offered;
    this.#returns(offered, this.#ackWaitMs);
    // Of an item that has since been delivered or offered again, this delivery decides nothing.
    const isCurrent = (): boolean => this.#offered.get(refKey(ref)) === offered && offered.deliveries === deliveries;
    return {
      ref,
      deliveries,
      done: async () => {
        if (isCurrent()) {
          offered.stay();
          this.#offered.delete(refKey(ref));
        }
        await turn();
      },
      giveBack: async (afterMs) => {
        if (isCurrent()) this.#returns(offered, afterMs);
        await turn();
      },
    };
  }

  #returns(offered: Offered, afterMs: number): void {
    offered.stay();
    offered.stay = after(afterMs, () => this.#makeReady(offered));
  }

  #makeReady(offered: Offered): void {
    const taker = this.#takers.shift();
    if (taker === undefined) this.#ready.push(offered);
    else taker.deliver(offered);
  }
}
