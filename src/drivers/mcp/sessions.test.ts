import { afterEach, expect, test, vi } from 'vitest';
import type { Session } from './exchange.ts';
import { Sessions } from './sessions.ts';
import type { Target } from './sessions.ts';

const REVISION_MS = 300_000;

afterEach(() => {
  vi.useRealTimers();
});

function targetOf(key: string, session = 's'): Target {
  return {
    key,
    sessionKey: `${key} ${session}`,
    credential: null,
    open: () => {
      throw new Error('nothing is opened here');
    },
  };
}

/** Sessions of servers whose every handshake gives another one; the ids of those that were ended. */
function setUp(era: 'legacy' | 'modern', idleMs: number) {
  const ended: string[] = [];
  const asked: boolean[] = [];
  const sessions = new Sessions({
    ...{ max: 10, idleMs, revisionMs: REVISION_MS },
    handshake: async (_target, isOld) => {
      asked.push(isOld);
      const revision = '2025-11-25';
      const made: Session =
        era === 'legacy'
          ? { era, revision, id: String(asked.length) }
          : { era, revision, discover: { supportedVersions: [], capabilities: {}, ttlMs: 0, cacheScope: 'private' } };
      return await Promise.resolve(made);
    },
    end: async (_target, session) => {
      if (session.era === 'legacy') ended.push(session.id ?? '');
      await Promise.resolve();
    },
  });
  return { sessions, asked, ended };
}

test('servers of the newer revision are asked once for all sessions, older ones once for each', async () => {
  const modern = setUp('modern', 1_000);
  await modern.sessions.get(targetOf('a', 'one'));
  await modern.sessions.get(targetOf('a', 'two'));
  expect(modern.asked).toEqual([false]);
  const legacy = setUp('legacy', 1_000);
  const both = [targetOf('a'), targetOf('a')].map(async (target) => await legacy.sessions.get(target));
  const [first, second] = await Promise.all(both);
  expect(first).toBe(second);
  await legacy.sessions.get(targetOf('a', 'two'));
  // The second is not asked for the newer revision again.
  expect(legacy.asked).toEqual([false, true]);
});

test('an idle session is ended, one in use not before its last user lets go of it', async () => {
  const { sessions, ended } = setUp('legacy', -1);
  const [idle, used] = [targetOf('idle'), targetOf('used')];
  await sessions.get(idle);
  const session = await sessions.get(used);
  expect(ended).toEqual(['1']);
  const letGo = [sessions.hold(used, session), sessions.hold(used, session)];
  await sessions.get(targetOf('another'));
  expect(ended).toEqual(['1']);
  for (const release of letGo) release();
  await sessions.get(targetOf('a third'));
  expect(new Set(ended)).toEqual(new Set(['1', '2', '3']));
  await sessions.stop();
  expect(ended).toHaveLength(4);
});

test('a session in use that is pushed out by others is ended after its use, one that the server forgot never', async () => {
  const { sessions, ended } = setUp('legacy', 60_000);
  const first = await sessions.get(targetOf('0'));
  const letGo = sessions.hold(targetOf('0'), first);
  for (let i = 1; i <= 10; i += 1) await sessions.get(targetOf(String(i)));
  expect(ended).toEqual([]);
  letGo();
  expect(ended).toEqual(['1']);
  const last = await sessions.get(targetOf('10'));
  sessions.forget(targetOf('10'), last);
  expect(await sessions.get(targetOf('10'))).not.toBe(last);
  await sessions.stop();
  expect(ended).not.toContain('11');
});

test('an idle session is ended although no other one is opened, and after the end nothing is left to do', async () => {
  vi.useFakeTimers();
  const { sessions, ended } = setUp('legacy', 60_000);
  const used = targetOf('used');
  const letGo = sessions.hold(used, await sessions.get(used));
  await sessions.get(targetOf('idle'));
  await vi.advanceTimersByTimeAsync(130_000);
  expect(ended).toEqual(['2']);
  letGo();
  await vi.advanceTimersByTimeAsync(130_000);
  expect(ended).toEqual(['2', '1']);
  expect(vi.getTimerCount()).toBe(0);
  await sessions.get(used);
  // The caches have a clock of their own, which soon stops.
  await vi.advanceTimersByTimeAsync(10);
  expect(vi.getTimerCount()).toBe(1);
  await sessions.stop();
  expect(vi.getTimerCount()).toBe(0);
});
