import { afterEach, beforeEach, expect, test } from 'vitest';
import { vaultRef } from '../commands/vault/vaults.ts';
import { UnavailableError } from '../lib/unavailable.ts';
import type { VaultState } from '../domain/vault/state.ts';
import { initialVault, evolveVault } from '../domain/vault/state.ts';
import type { VaultEvent } from '../domain/vault/events.ts';
import type { ContinuousListener } from '../streams/continuity.ts';
import type { LiveCommit } from '../streams/event-store.ts';
import { refKey } from '../streams/subjects.ts';
import { until } from '../../test/support/wait-until.ts';
import { completedSignIns, SignInWatch } from './sign-ins.ts';
import type { Awaiting } from './sign-ins.ts';

const HASH = 'a'.repeat(64);
const GRANT = { secretId: 'se_1', expiresAt: null, refresh: null };

/** A vault whose credential was given tokens this often. */
function vaultWith(grants: number): VaultState {
  const about = { name: 'n', type: 'oauth', url: 'https://a.example', bodyHash: HASH } as const;
  const events: VaultEvent[] = [
    { type: 'vault.created', data: { name: 'v', subject: 'ann', metadata: {}, bodyHash: HASH } },
    { type: 'credential.saved', data: { credentialId: 'cr_1', ...about, scopes: [], ...GRANT, secretId: null } },
    ...Array.from({ length: grants }, (_, n): VaultEvent => {
      return { type: 'credential.signed_in', data: { credentialId: 'cr_1', signInId: `si_${n}`, ...GRANT } };
    }),
  ];
  const meta = { at: '2026-01-01T00:00:00.000Z', position: 1, index: 0 };
  return events.reduce((state, event) => evolveVault(state, event, meta), initialVault);
}

const stored = new Map<string, VaultState>();
/** Vaults that were read, in order. */
let read: string[] = [];
let isAway = false;
const vaults = {
  refresh: async (ref: ReturnType<typeof vaultRef>) => {
    read.push(ref.id);
    if (isAway) throw new UnavailableError('streams', 'away');
    return await Promise.resolve({ state: stored.get(ref.id) ?? initialVault, position: 1, hash: '' });
  },
} as unknown as ConstructorParameters<typeof SignInWatch>[0]['vaults'];

let listener: ContinuousListener | null;
const feed = {
  listen: (one: ContinuousListener) => {
    listener = one;
    return () => {
      listener = null;
    };
  },
};
let signedIn: Awaiting[];
let errors: unknown[];
let stop: AbortController;
let running: Promise<void>;
let watch: SignInWatch<Awaiting>;

beforeEach(() => {
  stored.clear();
  [read, isAway, listener, signedIn, errors, stop] = [[], false, null, [], [], new AbortController()];
  watch = new SignInWatch({ feed, vaults, onSignedIn: (turn) => signedIn.push(turn) });
  const round = { signal: stop.signal, worked: () => undefined, failed: (error: unknown) => errors.push(error) };
  running = watch.run(round);
});

afterEach(async () => {
  stop.abort();
  await running;
  expect(listener).toBe(null);
});

function turn(vaultId: string, grants = 0): Awaiting {
  const signIns = [{ interactionId: `in_${vaultId}`, vaultId, credentialId: 'cr_1', grants }];
  return { ref: { tenant: 'tn', kind: 'session', id: `s-${vaultId}` }, watch: { signIns } };
}

function changed(vaultId: string): void {
  const ref = vaultRef('tn', vaultId);
  listener?.onCommit({ ref, key: refKey(ref), shard: 0, position: 2 } as unknown as LiveCommit);
}

const readAll = async (...ids: readonly string[]): Promise<unknown> =>
  await until('the vaults have been read', () => ids.every((id) => read.includes(id)));

test('a turn whose sign-in came before anybody watched is found', async () => {
  stored.set('va_1', vaultWith(1));
  const one = turn('va_1');
  watch.add(one);
  await until('it is found', () => watch.isSignedIn(one));
  expect(signedIn).toEqual([one]);
});

test('a sign-in that comes later is found with its commit, for every turn that waits for it and no other', async () => {
  const [one, two, later, other] = [turn('va_1'), turn('va_1'), turn('va_1', 1), turn('va_2')];
  for (const each of [one, two, later, other]) watch.add(each);
  await readAll('va_1', 'va_2');
  expect(signedIn).toEqual([]);
  read = [];
  stored.set('va_1', vaultWith(1)).set('va_2', vaultWith(1));
  changed('va_9');
  changed('va_1');
  await until('they are found', () => watch.isSignedIn(one) && watch.isSignedIn(two));
  expect(signedIn).toEqual([one, two]);
  expect([later, other].map((each) => watch.isSignedIn(each))).toEqual([false, false]);
  expect(read).toEqual(['va_1']);
  // A use of the credential is a commit too.
  changed('va_1');
  const fresh = turn('va_1');
  watch.add(fresh);
  await until('the vault is read again', () => watch.isSignedIn(fresh));
  expect(signedIn).toEqual([one, two, fresh]);
});

test('after missed commits every vault is read', async () => {
  const [one, other] = [turn('va_1'), turn('va_2')];
  watch.add(one);
  watch.add(other);
  await readAll('va_1', 'va_2');
  stored.set('va_1', vaultWith(1)).set('va_2', vaultWith(1));
  listener?.onGap({ shard: 3, after: 1, upTo: 9 });
  await until('both are found', () => signedIn.length === 2);
  expect(signedIn).toEqual([one, other]);
});

test('a vault that cannot be read is read again', async () => {
  isAway = true;
  stored.set('va_1', vaultWith(1));
  const one = turn('va_1');
  watch.add(one);
  await until('it has failed', () => errors.length > 0);
  isAway = false;
  await until('it is found', () => watch.isSignedIn(one));
  expect(read.length).toBeGreaterThan(1);
});

test('what no longer waits is forgotten', async () => {
  const one = turn('va_1');
  watch.add(one);
  await readAll('va_1');
  watch.remove(one);
  stored.set('va_1', vaultWith(1));
  changed('va_1');
  const other = turn('va_2');
  watch.add(other);
  await readAll('va_2');
  expect(read.filter((id) => id === 'va_1')).toHaveLength(1);
  expect(watch.isSignedIn(one)).toBe(false);
});

test('a worker asks the vaults itself', async () => {
  stored.set('va_1', vaultWith(2)).set('va_2', vaultWith(1));
  const asked = [turn('va_1', 1), turn('va_2', 1), turn('va_3')].flatMap((each) => each.watch.signIns ?? []);
  expect([...(await completedSignIns(vaults, 'tn', asked))]).toEqual(['in_va_1']);
});
