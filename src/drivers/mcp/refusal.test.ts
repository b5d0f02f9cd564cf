import { expect, test } from 'vitest';
import { provesRefusal } from './refusal.ts';

const error = (code: number, id?: string | null) =>
  JSON.stringify({ jsonrpc: '2.0', error: { code, message: 'no' }, ...(id === undefined ? {} : { id }) });

test.each([
  ['a request that could not be read', 503, error(-32_000, null), true],
  ['no such session, as the reference servers say it', 400, error(-32_000, 'x1'), true],
  ['no such session', 404, error(-32_001, 'x1'), true],
  ['an input that does not fit', 422, error(-32_602, 'x1'), true],
  ['too many requests, of this one', 429, error(-32_000, 'x1'), false],
  ['a failure inside', 400, error(-32_603, 'x1'), false],
  ['a failure inside, of what knows no id', 500, error(-32_603, null), false],
  ['a failure on the way, of what knows no id', 503, error(-32_603, null), false],
  ['a failure of a proxy', 503, '<html>', false],
  ['nothing', 400, '', false],
  ['JSON that is no error', 400, '{"jsonrpc":"2.0","id":"x1","result":{}}', false],
  ['no JSON-RPC', 404, '{"error":{"code":-32600}}', false],
])('%s, %d', (_what, status, body, proves) => {
  expect(provesRefusal(status, body)).toBe(proves);
});
