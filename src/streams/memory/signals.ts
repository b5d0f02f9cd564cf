import { ofThisPart } from '../../lib/fault-points.ts';
import type { Signals } from '../signals.ts';

/** Signals within this process, to all that share this object. */
export class MemorySignals implements Signals {
  readonly #listeners = new Set<{ topic: string; onSignal: (topic: string, text: string) => void }>();

  send(topic: string, text: string): void {
    setImmediate(() => {
      for (const listener of this.#listeners) if (matches(listener.topic, topic)) listener.onSignal(topic, text);
    });
  }

  listen(topic: string, onSignal: (topic: string, text: string) => void): () => void {
    const listener = { topic, onSignal: ofThisPart(onSignal) };
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}

function matches(wanted: string, topic: string): boolean {
  return wanted.endsWith('.>') ? topic.startsWith(wanted.slice(0, -1)) : topic === wanted;
}
