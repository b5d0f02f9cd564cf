import type { StoredCommit } from '#src/streams/commit.ts';
import type { Drained, TailEnd, TailSink } from '#src/streams/tail.ts';

/** A reader that takes everything at once, and remembers it. */
export class Reader implements TailSink {
  readonly positions: number[] = [];
  ended: string | null = null;

  write(commit: StoredCommit): boolean {
    this.positions.push(commit.position);
    return true;
  }

  async drained(): Promise<Drained> {
    return await Promise.resolve('taken');
  }

  end(reason: TailEnd): void {
    if (this.ended !== null) throw new Error('a tail has ended twice');
    this.ended = reason;
  }
}

/** A reader with room for a few commits; the rest waits until `take` makes room again. */
export class SlowReader extends Reader {
  readonly #room: number;
  #waiting = 0;
  #wake: (() => void)[] = [];

  constructor(room: number) {
    super();
    this.#room = room;
  }

  override write(commit: StoredCommit): boolean {
    super.write(commit);
    this.#waiting++;
    return this.#waiting <= this.#room;
  }

  override async drained(): Promise<Drained> {
    if (this.#waiting > this.#room) await new Promise<void>((resolve) => this.#wake.push(resolve));
    return 'taken';
  }

  take(): void {
    this.#waiting = 0;
    for (const wake of this.#wake.splice(0)) wake();
  }
}
