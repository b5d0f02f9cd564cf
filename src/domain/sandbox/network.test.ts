import { expect, test } from 'vitest';
import { allowsTarget } from './network.ts';

const at = (target: string) => {
  const [host = '', port] = target.split(':');
  return { host, port: Number(port) };
};

test.each([
  ['api.example', 'api.example:443', true],
  ['api.example', 'api.example:80', true],
  ['api.example', 'API.example.:443', true],
  ['api.example', 'api.example:8080', false],
  ['api.example', 'x.api.example:443', false],
  ['api.example', 'xapi.example:443', false],
  ['api.example:8080', 'api.example:8080', true],
  ['api.example:8080', 'api.example:443', false],
  ['*.example', 'api.example:443', true],
  ['*.example', 'a.b.example:443', true],
  ['*.example', 'example:443', false],
  ['*.example', 'notexample:443', false],
  ['*.example:81', 'a.example:81', true],
  ['*.example:81', 'a.example:443', false],
  ['127.0.0.1:9000', '127.0.0.1:9000', true],
])('%s and %s: %s', (entry, target, isAllowed) => {
  expect(allowsTarget([entry], at(target))).toBe(isAllowed);
  expect(allowsTarget(['other.example', entry], at(target))).toBe(isAllowed);
});

test('nothing is allowed by an empty list', () => {
  expect(allowsTarget([], at('api.example:443'))).toBe(false);
});
