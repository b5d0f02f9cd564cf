import { Response } from 'undici';
import { expect, test } from 'vitest';
import { AUDIENCE, claims, ISSUER, SigningKey } from '../../test/support/tokens.ts';
import { egressClient } from '../lib/egress-client.ts';
import type { EgressClient } from '../lib/egress-client.ts';
import { egressPolicy } from '../lib/egress.ts';
import { TokenVerifier } from './issuers.ts';

const issuer = {
  issuer: ISSUER,
  audience: AUDIENCE,
  subjectClaim: 'sub',
  scopesClaim: 'scope',
  allowedScopes: [],
  maxLifetimeSeconds: 3_600,
};

test('an address that was registered before it was refused is not called', async () => {
  const key = new SigningKey('one');
  const client = egressClient({ policy: egressPolicy('public'), connectMs: 1_000, silenceMs: 1_000 });
  for (const jwksUrl of [
    'https://169.254.169.254/keys',
    'https://10.0.0.1/keys',
    'http://127.0.0.1:1/keys',
    'https://[64:ff9b::a9fe:a9fe]/keys',
    'http://10.0.0.1/keys',
  ]) {
    const verifier = new TokenVerifier({ issuers: () => ({ people: { ...issuer, jwksUrl } }) }, client.fetch, Date.now);
    const error = await verifier.verify('tn_1', key.token(claims())).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ dependency: 'issuer' });
    expect(String((error as Error).cause)).toContain('not one that this Host calls');
  }
});

/** Counts what is fetched, and answers with a set of one key. */
function fetching(key: SigningKey) {
  const fetched: string[] = [];
  const fetch: EgressClient['fetch'] = async (url) => {
    fetched.push(String(url));
    return await Promise.resolve(new Response(JSON.stringify({ keys: [key.jwk] })));
  };
  return { fetched, fetch };
}

test('one tenant that registers issuers without end has the keys of no other forgotten', async () => {
  const key = new SigningKey('one');
  const { fetched, fetch } = fetching(key);
  const registered: Record<string, Record<string, typeof issuer & { jwksUrl: string }>> = {};
  const verifier = new TokenVerifier({ issuers: (tenant) => registered[tenant] ?? {} }, fetch, Date.now);
  const token = key.token(claims());
  const verify = async (tenant: string, name: string, jwksUrl: string): Promise<void> => {
    registered[tenant] = { [name]: { ...issuer, jwksUrl } };
    expect(await verifier.verify(tenant, token)).toMatchObject({ subject: 'ann', issuer: name });
  };
  const polite = 'https://polite.example/keys';
  await verify('polite', 'people', polite);
  for (let n = 0; n < 1_100; n++)
    await verify('greedy', n % 2 === 0 ? 'people' : `n${n}`, `https://greedy.example/${n}`);
  await verify('polite', 'people', polite);
  expect(fetched.filter((url) => url === polite)).toHaveLength(1);
  expect(fetched).toHaveLength(1_101);
});

test('a token is good by the clock that the Host has', async () => {
  const key = new SigningKey('one');
  let aheadMs = 0;
  const people = { ...issuer, jwks: { keys: [key.jwk] } };
  const verifier = new TokenVerifier({ issuers: () => ({ people }) }, fetching(key).fetch, () => Date.now() + aheadMs);
  const token = key.token(claims());
  expect(await verifier.verify('tn_1', token)).toMatchObject({ subject: 'ann' });
  aheadMs = 331_000;
  expect(await verifier.verify('tn_1', token)).toBe('expired');
});
