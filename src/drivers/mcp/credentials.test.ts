import { expect, test } from 'vitest';
import { Access } from './credentials.ts';
import type { ServerCredential } from './credentials.ts';

const SERVER = {
  ...{ tenant: 'tn_1', sessionId: 's', turnId: null, vaultIds: ['va_1'] },
  ...{ name: 'srv', url: 'https://mcp.example/mcp', headers: {}, only: null },
};

/** Tokens that are numbered as they are issued. */
async function numbered(): Promise<{ readonly access: Access; readonly issued: () => number }> {
  let issued = 0;
  const next = async (): Promise<ServerCredential> => {
    issued += 1;
    const token = `token ${issued}`;
    return await Promise.resolve({
      kind: 'token',
      vaultId: 'va_1',
      credentialId: 'cr_1',
      grants: 1,
      token,
      refused: next,
    });
  };
  return { access: await Access.of({ forUrl: next }, SERVER), issued: () => issued };
}

test('requests that are refused the same token wait for the same one', async () => {
  const { access, issued } = await numbered();
  expect(await Promise.all(Array.from({ length: 5 }, async () => await access.renew('token 1')))).toEqual(
    Array.from({ length: 5 }, () => true),
  );
  expect([access.token, issued()]).toEqual(['token 2', 2]);
  // Late: there is a newer one already.
  expect(await access.renew('token 1')).toBe(true);
  expect(issued()).toBe(2);
});

test('a call may outlive several tokens, but not any number', async () => {
  const { access, issued } = await numbered();
  const renewed: boolean[] = [];
  for (let n = 1; n <= 10; n += 1) renewed.push(await access.renew(access.token));
  expect(renewed).toEqual([...Array.from({ length: 8 }, () => true), false, false]);
  expect(issued()).toBe(9);
});

test('an answer that is no token is the last', async () => {
  const gone: ServerCredential = { kind: 'needs_auth', vaultId: 'va_1', credentialId: 'cr_1', grants: 1 };
  const first: ServerCredential = {
    ...{ kind: 'token', vaultId: 'va_1', credentialId: 'cr_1', grants: 1, token: 'a' },
    refused: async () => await Promise.resolve(gone),
  };
  const access = await Access.of({ forUrl: async () => await Promise.resolve(first) }, SERVER);
  expect(await access.renew('a')).toBe(false);
  expect(access.current).toBe(gone);
  expect(await access.renew('a')).toBe(false);
});
