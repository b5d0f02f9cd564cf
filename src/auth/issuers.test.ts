import { expect, test } from 'vitest';
import { AUDIENCE, claims, ISSUER, SigningKey } from '../../test/support/tokens.ts';
import { egressClient } from '../lib/egress-client.ts';
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
    const verifier = new TokenVerifier({ issuers: () => ({ people: { ...issuer, jwksUrl } }) }, client.fetch);
    const error = await verifier.verify('tn_1', key.token(claims())).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ dependency: 'issuer' });
    expect(String((error as Error).cause)).toContain('not one that this Host calls');
  }
});
