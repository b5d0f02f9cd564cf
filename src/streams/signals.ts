/**
 * Short notes between processes, at most once, to those that listen. Nothing may depend on one arriving: the listener
 * of a note has another way to learn what it says.
 */
export interface Signals {
  send(topic: string, text: string): void;
  /** `topic` may end in `.>`. Returns the function that stops listening. */
  listen(topic: string, onSignal: (topic: string, text: string) => void): () => void;
}
