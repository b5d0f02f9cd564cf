import { vaultRef } from '../commands/vault/vaults.ts';
import type { Repository } from '../commands/repository.ts';
import type { AwaitedSignIn } from '../domain/turn/sign-ins.ts';
import type { VaultEvent } from '../domain/vault/events.ts';
import { isGivenAgain } from '../domain/vault/sign-in.ts';
import type { VaultState } from '../domain/vault/state.ts';
import { delay } from '../lib/backoff.ts';
import type { Round } from '../lib/background-task.ts';
import { Wake } from '../lib/wake.ts';
import type { ContinuousFeed } from '../streams/continuity.ts';
import { refKey } from '../streams/subjects.ts';
import type { AggregateRef } from '../streams/subjects.ts';

export type Vaults = Pick<Repository<VaultState, VaultEvent>, 'refresh'>;

/**
 * The interactions among `signIns` whose sign-ins the tenant's vaults show by now.
 * @throws UnavailableError (streams)
 */
export async function completedSignIns(
  vaults: Vaults,
  tenant: string,
  signIns: readonly AwaitedSignIn[],
): Promise<ReadonlySet<string>> {
  const done = new Set<string>();
  for (const vaultId of new Set(signIns.map((one) => one.vaultId))) {
    const { state } = await vaults.refresh(vaultRef(tenant, vaultId));
    for (const one of signIns) {
      if (one.vaultId === vaultId && isGivenAgain(state, one)) done.add(one.interactionId);
    }
  }
  return done;
}

/** A turn that waits for sign-ins. */
export interface Awaiting {
  readonly ref: AggregateRef;
  readonly watch: { readonly signIns?: readonly AwaitedSignIn[] };
}

export interface SignInWatchOptions<T extends Awaiting> {
  readonly feed: Pick<ContinuousFeed, 'listen'>;
  readonly vaults: Vaults;
  /** A turn has what it waits for. */
  readonly onSignedIn: (turn: T) => void;
}

/** Vaults that are read at the same time. */
const READS_AT_ONCE = 8;
const RETRY_MS = 500;

/** A vault that turns wait for. */
interface Awaited<T> {
  readonly ref: AggregateRef;
  readonly turns: Set<T>;
  /** Those whose sign-in it showed when it was last read. */
  signedIn: ReadonlySet<T>;
}

/**
 * Finds the turns of one stream whose sign-ins are done. A vault is read when a turn begins to wait for it (also when
 * another node has begun to watch), when it has a new commit, and when commits may have been missed: so it does not matter
 * which node took a sign-in, or whether it is still there.
 */
export class SignInWatch<T extends Awaiting> {
  readonly #options: SignInWatchOptions<T>;
  readonly #awaited = new Map<string, Awaited<T>>();
  /** Keys of vaults that have to be read. */
  readonly #unread = new Set<string>();
  readonly #wake = new Wake();

  constructor(options: SignInWatchOptions<T>) {
    this.#options = options;
  }

  add(turn: T): void {
    for (const ref of vaultsOf(turn)) {
      const key = refKey(ref);
      const awaited = this.#awaited.get(key) ?? { ref, turns: new Set(), signedIn: new Set() };
      this.#awaited.set(key, awaited);
      awaited.turns.add(turn);
      this.#read(key);
    }
  }

  remove(turn: T): void {
    for (const ref of vaultsOf(turn)) {
      const key = refKey(ref);
      const turns = this.#awaited.get(key)?.turns;
      turns?.delete(turn);
      if (turns?.size === 0) this.#awaited.delete(key);
    }
  }

  /** Whether a worker can continue the turn. */
  isSignedIn(turn: T): boolean {
    return vaultsOf(turn).some((ref) => this.#awaited.get(refKey(ref))?.signedIn.has(turn));
  }

  clear(): void {
    this.#awaited.clear();
    this.#unread.clear();
  }

  /** Watches until the signal aborts. What cannot be read is read again. */
  async run({ signal, failed, worked }: Round): Promise<void> {
    const stop = (): void => this.#wake.raise();
    const unlisten = this.#options.feed.listen({
      onCommit: ({ ref }) => {
        if (ref.kind === 'vault') this.#read(refKey(ref));
      },
      onGap: () => {
        for (const key of this.#awaited.keys()) this.#read(key);
      },
    });
    signal.addEventListener('abort', stop);
    try {
      while (!signal.aborted) {
        if (this.#unread.size === 0) await this.#wake.wait(null);
        const errors = await this.#readSome();
        if (errors.length === 0) worked();
        else {
          failed(errors[0]);
          await delay(RETRY_MS, signal);
        }
      }
    } finally {
      signal.removeEventListener('abort', stop);
      unlisten();
    }
  }

  #read(key: string): void {
    if (!this.#awaited.has(key)) return;
    this.#unread.add(key);
    this.#wake.raise();
  }

  async #readSome(): Promise<readonly unknown[]> {
    const keys: string[] = [];
    for (const key of this.#unread) if (keys.push(key) === READS_AT_ONCE) break;
    const errors: unknown[] = [];
    const read = async (key: string): Promise<void> => {
      this.#unread.delete(key);
      try {
        await this.#compare(key);
      } catch (error) {
        errors.push(error);
        this.#read(key);
      }
    };
    await Promise.all(keys.map(read));
    return errors;
  }

  async #compare(key: string): Promise<void> {
    const awaited = this.#awaited.get(key);
    if (awaited === undefined) return;
    const { vaults, onSignedIn } = this.#options;
    const { state } = await vaults.refresh(awaited.ref);
    const isDone = (turn: T): boolean =>
      signInsOf(turn).some((one) => one.vaultId === awaited.ref.id && isGivenAgain(state, one));
    const before = awaited.signedIn;
    awaited.signedIn = new Set([...awaited.turns].filter(isDone));
    // Each use of a credential is a commit of its vault: most of them are no news.
    for (const turn of awaited.signedIn) if (!before.has(turn)) onSignedIn(turn);
  }
}

function signInsOf({ watch }: Awaiting): readonly AwaitedSignIn[] {
  return watch.signIns ?? [];
}

function vaultsOf(turn: Awaiting): readonly AggregateRef[] {
  if (turn.watch.signIns === undefined) return [];
  const ids = new Set(signInsOf(turn).map(({ vaultId }) => vaultId));
  return [...ids].map((vaultId) => vaultRef(turn.ref.tenant, vaultId));
}
