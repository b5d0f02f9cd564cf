import { expect } from 'vitest';
import { z } from 'zod';
import type { Answer, RawRequest } from './client.ts';
import { planted } from './planted.ts';

export interface VaultSecrets {
  readonly token: string;
  readonly oldToken: string;
  readonly accessToken: string;
  readonly refreshToken: string;
  readonly clientSecret: string;
  /** Of requests that are refused. */
  readonly badToken: string;
}

/** Texts that stand nowhere else, for everything secret that a vault is given. */
export function plantedForVaults(): VaultSecrets {
  return {
    token: planted('vault-token'),
    oldToken: planted('old-vault-token'),
    accessToken: planted('access-token'),
    refreshToken: planted('refresh-token'),
    clientSecret: planted('client-secret'),
    badToken: planted('bad-vault-token'),
  };
}

interface Keeping {
  readonly ask: (raw: RawRequest) => Promise<Answer>;
  readonly secrets: VaultSecrets;
  /** Of the vault. */
  readonly name: string;
}

/** Puts the secrets into a vault in every way that is right and wrong, and reads all that is shown of them. */
export async function keepInVaults({ ask, secrets, name }: Keeping): Promise<void> {
  const post = async (path: string, body: object, key: string): Promise<string> => {
    const answer = await ask({ method: 'POST', path, body: { requestId: 'r', idempotencyKey: key, ...body } });
    expect(answer.status, answer.text).toBeLessThan(300);
    return z.looseObject({ id: z.string() }).parse(answer.json).id;
  };
  const url = 'https://mcp.example/mcp';
  const id = await post('/v1/vaults', { name, subject: 'ann' }, 'v');
  const path = `/v1/vaults/${id}/credentials`;
  const bearer = { type: 'bearer', url };
  const one = await post(path, { name: 'n', auth: { ...bearer, token: secrets.oldToken } }, 'one');
  await post(`${path}/${one}`, { auth: { ...bearer, token: secrets.token } }, 'two');
  const { accessToken, refreshToken, clientSecret, badToken } = secrets;
  const refresh = { tokenEndpoint: 'https://as.example/token', clientId: 'c', refreshToken, clientSecret };
  await post(path, { name: 'n', auth: { type: 'oauth', url, accessToken, refresh } }, 'three');
  const bad = [
    { ...bearer, token: `${badToken} x` },
    { ...bearer, url: `https://name:${badToken}@mcp.example`, token: badToken },
    { ...bearer, url: 'http://mcp.example', token: badToken },
    { ...bearer, type: badToken },
    { type: 'oauth', url, token: badToken },
    badToken,
  ];
  for (const auth of bad) {
    const body = { requestId: 'r', idempotencyKey: 'bad', name: 'n', auth };
    expect((await ask({ method: 'POST', path, body })).status).toBe(400);
  }
  const again = { requestId: 'r', idempotencyKey: 'one', name: 'n', auth: { ...bearer, token: badToken } };
  expect((await ask({ method: 'POST', path, body: again })).status).toBe(409);
  await ask({ method: 'PUT', path: '/v1/sessions/vaulted', body: { agentId: 'agent', vaultIds: [id] } });
  for (const shown of [path, `${path}/${one}`]) expect((await ask({ path: shown })).status).toBe(200);
  expect((await ask({ method: 'DELETE', path: `${path}/${one}` })).status).toBe(200);
}
