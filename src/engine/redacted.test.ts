import { expect, test } from 'vitest';
import { redacted } from './redacted.ts';

test('a secret is taken out wherever an answer repeats it, and nothing else is changed', () => {
  const body = Buffer.concat([Buffer.from([0, 255, 10]), Buffer.from('a=s3cret&b=s3crets3cret.'), Buffer.from([128])]);
  const answer = { status: 200, statusText: 'OK s3cret', headers: { 'x-s3cret': 'Bearer s3cret', b: 'c' }, body };
  const clean = redacted(answer, 's3cret');
  expect(clean).toMatchObject({ status: 200, statusText: 'OK [redacted]', headers: { b: 'c' } });
  expect(clean.headers).toEqual({ 'x-[redacted]': 'Bearer [redacted]', b: 'c' });
  const wanted = 'a=[redacted]&b=[redacted][redacted].';
  expect(Buffer.from(clean.body)).toEqual(
    Buffer.concat([Buffer.from([0, 255, 10]), Buffer.from(wanted), Buffer.from([128])]),
  );
  expect(redacted({ ...answer, body: Buffer.from('none') }, 's3cret').body).toEqual(Buffer.from('none'));
});
