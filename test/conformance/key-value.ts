import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { KeyValue, KeyValueChange } from '#src/streams/key-value.ts';
import { until } from '../support/wait-until.ts';

export interface KeyValueFixture extends AsyncDisposable {
  readonly leases: KeyValue;
  /** The same bucket, as another node has it. */
  readonly rival: KeyValue;
  readonly directory: KeyValue;
}

let made = 0;
export const newKey = (prefix = 'k'): string => `${prefix}.${++made}`;

/** The changes below a prefix, in their order, until the signal aborts. */
export async function watching(
  kv: KeyValue,
  prefix: string,
  signal = new AbortController().signal,
): Promise<KeyValueChange[]> {
  const changes: KeyValueChange[] = [];
  await kv.watch(prefix, (change) => void changes.push(change), signal);
  return changes;
}

export const told = (change: KeyValueChange): string =>
  change.kind === 'put' ? `${change.entry.key}=${change.entry.value}` : `-${change.key}`;

/** What every implementation of src/streams/key-value.ts promises. */
export function keyValueConformance(name: string, makeFixture: () => Promise<KeyValueFixture>): void {
  describe(`buckets ${name}`, () => {
    let fixture: KeyValueFixture;
    let leases: KeyValue;
    let rival: KeyValue;
    let directory: KeyValue;

    beforeAll(async () => {
      fixture = await makeFixture();
      ({ leases, rival, directory } = fixture);
    });

    afterAll(async () => {
      await fixture[Symbol.asyncDispose]();
    });

    describe('entries', () => {
      test.each(['get', 'newest'] as const)('put, %s, remove', async (read) => {
        const key = newKey();
        expect(await directory[read](key)).toBeNull();
        const first = await directory.put(key, 'ä 1');
        expect(await directory[read](key)).toEqual({ key, value: 'ä 1', revision: first });
        const second = await directory.put(key, '');
        expect(second).toBeGreaterThan(first);
        expect(await directory[read](key)).toEqual({ key, value: '', revision: second });
        await directory.remove(key);
        expect(await directory[read](key)).toBeNull();
      });

      test('every legal character of a key', async () => {
        const key = 'session.tn_01.a=2fb-C_9';
        const revision = await directory.put(key, 'v');
        expect(await directory.get(key)).toEqual({ key, value: 'v', revision });
      });
    });

    describe('swap', () => {
      test('20 at once: one winner, for a new key, a present one and a removed one', async () => {
        const key = newKey();
        let expected = 0;
        for (let round = 0; round < 10; round++) {
          const results = await Promise.all(
            Array.from({ length: 20 }, async (_, n) => ({
              value: `${round}-${n}`,
              revision: await (n % 2 === 0 ? leases : rival).swap(key, `${round}-${n}`, { expected }),
            })),
          );
          const won = results.filter(({ revision }) => revision !== null);
          expect(won).toHaveLength(1);
          expect(await leases.get(key)).toEqual({ key, ...won[0] });
          expected = won[0]?.revision ?? 0;
          if (round % 3 === 2) {
            await leases.remove(key);
            expected = 0;
          }
        }
      });

      test('a stale revision, and "there is none" where there is one, are refused', async () => {
        const key = newKey();
        const first = (await leases.swap(key, 'a', { expected: 0 })) ?? 0;
        const second = (await leases.swap(key, 'b', { expected: first })) ?? 0;
        expect(second).toBeGreaterThan(first);
        expect(await leases.swap(key, 'c', { expected: first })).toBeNull();
        expect(await leases.swap(key, 'c', { expected: 0 })).toBeNull();
        expect(await leases.get(key)).toEqual({ key, value: 'b', revision: second });
      });
    });

    describe('entries with a time to live', () => {
      test('run out, a watcher hears of it, and the key is free again for one', async () => {
        const key = newKey('ttl');
        const changes = await watching(leases, 'ttl');
        expect(await leases.swap(key, 'mine', { expected: 0, ttlMs: 5_000 })).not.toBeNull();
        expect(await rival.swap(key, 'theirs', { expected: 0, ttlMs: 5_000 })).toBeNull();
        await until('it has run out', () => changes.some((change) => change.kind === 'removed'));
        expect(await leases.get(key)).toBeNull();
        const taken = await Promise.all([
          leases.swap(key, 'mine', { expected: 0, ttlMs: 60_000 }),
          rival.swap(key, 'theirs', { expected: 0, ttlMs: 60_000 }),
        ]);
        expect(taken.filter((revision) => revision !== null)).toHaveLength(1);
        const owner = taken[0] === null ? 'theirs' : 'mine';
        expect((await leases.get(key))?.value).toBe(owner);
        await until('the watcher has seen the new owner', () => changes.length === 3);
        expect(changes.map(told)).toEqual([`${key}=mine`, `-${key}`, `${key}=${owner}`]);
      });

      test('renewed in time they stay; a renewal says its time to live again', async () => {
        const key = newKey();
        const other = newKey();
        let revision = (await leases.swap(key, 'v', { expected: 0, ttlMs: 6_000 })) ?? 0;
        await leases.swap(other, 'v', { expected: 0, ttlMs: 12_000 });
        // The other entry is the clock: it lives twice as long as one renewal.
        let renewals = 0;
        let renewedAt = performance.now();
        await until('the other has run out', async () => {
          if (performance.now() - renewedAt > 1_500) {
            revision = (await leases.swap(key, 'v', { expected: revision, ttlMs: 6_000 })) ?? -1;
            renewedAt = performance.now();
            renewals++;
          }
          return (await leases.get(other)) === null;
        });
        expect(renewals).toBeGreaterThanOrEqual(2);
        expect(await leases.get(key)).toEqual({ key, value: 'v', revision });
        await until('it runs out without renewal', async () => (await leases.get(key)) === null);
      });
    });

    describe('watch', () => {
      test('of nothing is ready at once, and hears what comes', async () => {
        const changes = await watching(directory, 'nothing');
        expect(changes).toEqual([]);
        await directory.put('nothing.1', 'a');
        // A bucket keeps the newest change of a key only: one that follows at once may be all that a watcher hears.
        await until('the first has come', () => changes.length === 1, 30_000);
        await directory.remove('nothing.1');
        await directory.put('nothing.more.2', 'b');
        await directory.put('nothingness.1', 'c');
        await directory.put('nothing.3', 'd');
        await until('all have come', () => changes.length >= 4, 30_000);
        expect(changes.map(told)).toEqual(['nothing.1=a', '-nothing.1', 'nothing.more.2=b', 'nothing.3=d']);
      });

      test('is ready when the newest value of every key has been reported', async () => {
        const count = 3_000;
        await Promise.all(Array.from({ length: count }, async (_, n) => await directory.put(`many.${n}`, 'old')));
        await Promise.all(Array.from({ length: count }, async (_, n) => await directory.put(`many.${n}`, `new ${n}`)));
        await directory.remove('many.0');
        const changes = await watching(directory, 'many');
        const state = new Map(
          changes.map((change) => [change.kind === 'put' ? change.entry.key : change.key, told(change)]),
        );
        expect(state.size).toBe(count);
        expect(state.get('many.0')).toBe('-many.0');
        for (let n = 1; n < count; n++) expect(state.get(`many.${n}`)).toBe(`many.${n}=new ${n}`);
      });

      test('is ready although its keys change meanwhile', async () => {
        const count = 300;
        await Promise.all(Array.from({ length: count }, async (_, n) => await directory.put(`busy.${n}`, '0')));
        const end = new AbortController();
        const writing = (async () => {
          for (let round = 1; !end.signal.aborted; round++) await directory.put(`busy.${round % count}`, String(round));
        })();
        const opened = await Promise.all(Array.from({ length: 10 }, async () => await watching(directory, 'busy')));
        end.abort();
        await writing;
        for (const changes of opened) {
          expect(new Set(changes.map((change) => told(change).split('=')[0])).size).toBe(count);
        }
      });

      test('of the whole bucket, with keys of any depth; an ended one hears nothing more', async () => {
        const end = new AbortController();
        const ended = await watching(leases, '', end.signal);
        const going = await watching(leases, '');
        const before = ended.length;
        end.abort();
        await leases.put('deep.er.key', 'v');
        await until('the other has heard', () => going.some((change) => told(change) === 'deep.er.key=v'));
        expect(ended).toHaveLength(before);
      });

      test('that is aborted before it began is over', async () => {
        await directory.put('over.1', 'v');
        const changes = await watching(directory, 'over', AbortSignal.abort());
        await directory.put('over.2', 'v');
        expect(changes.map(told)).not.toContain('over.2=v');
      });
    });
  });
}
