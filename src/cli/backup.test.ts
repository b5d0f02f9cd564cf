import { expect, test } from 'vitest';
import { StartError } from '../lib/start-error.ts';
import { underOneHostKey } from './backup.ts';

/** A bucket whose entry of the Host key is replaced while it is copied. */
function bucket(before: string | null, after: string | null) {
  const done: string[] = [];
  const check = async (): Promise<string | null> => {
    done.push('check');
    return await Promise.resolve(done.includes('copy') ? after : before);
  };
  const copy = async (): Promise<string> => {
    done.push('copy');
    return await Promise.resolve('keys');
  };
  return { done, check, copy };
}

test('a backup names the Host key that its keys were copied under', async () => {
  const { done, check, copy } = bucket('one', 'one');
  expect(await underOneHostKey(check, copy)).toEqual({ copied: 'keys', hostKeyCheck: 'one' });
  expect(done).toEqual(['check', 'copy', 'check']);
});

test('a backup of keys whose Host key is changed meanwhile is refused', async () => {
  const { check, copy } = bucket('one', 'two');
  await expect(underOneHostKey(check, copy)).rejects.toThrow(
    new StartError('the Host key was changed meanwhile; run the backup again'),
  );
});

test('an installation without a Host key is not copied', async () => {
  const { done, check, copy } = bucket(null, 'one');
  await expect(underOneHostKey(check, copy)).rejects.toThrow('no Host key yet');
  expect(done).toEqual(['check']);
});
