import { expect, test } from 'vitest';
import { canonicalResource, coveredPath } from './url-scope.ts';

test.each([
  ['https://a.example/mcp', 'https://a.example/mcp', 4],
  ['https://a.example/mcp', 'https://a.example/mcp/', 4],
  ['https://a.example/mcp/', 'https://a.example/mcp', 4],
  ['https://a.example/mcp', 'https://a.example/mcp/x?y=1', 4],
  ['https://a.example', 'https://a.example/anything', 0],
  ['https://A.example:443/mcp', 'https://a.example/mcp', 4],
  ['http://127.0.0.1:80/mcp', 'http://127.0.0.1/mcp', 4],
  ['https://a.example/a%2fb', 'https://a.example/a%2fb', 6],
])('a credential for %s covers %s', (own, target, covered) => {
  expect(coveredPath(own, target)).toBe(covered);
});

test.each([
  ['https://a.example/mcp', 'https://a.example/mcpx'],
  ['https://a.example/mcp', 'https://a.example/'],
  ['https://a.example/mcp', 'https://a.example/mcp/../admin'],
  ['https://a.example/mcp', 'https://a.example/mcp/%2e%2e/admin'],
  ['https://a.example/mcp', 'https://a.example/mcp/..%2fadmin'],
  ['https://a.example/mcp', 'https://a.example/mcp/..%5Cadmin'],
  ['https://a.example/mcp', 'https://a.example:8443/mcp'],
  ['https://a.example/mcp', 'https://a.example.evil.example/mcp'],
  ['https://a.example/mcp', 'https://sub.a.example/mcp'],
  ['https://a.example/mcp', 'https://a.example@evil.example/mcp'],
  ['https://a.example/mcp', 'https://name:word@a.example/mcp'],
  ['https://a.example/mcp', 'http://a.example/mcp'],
  ['http://a.example/mcp', 'http://a.example/mcp'],
  ['http://127.0.0.1/mcp', 'http://127.0.0.1.evil.example/mcp'],
  ['https://a.example/mcp', '/mcp'],
])('a credential for %s is not sent to %s', (own, target) => {
  expect(coveredPath(own, target)).toBeNull();
});

test('the resource of a server has neither query nor slash at its end', () => {
  expect(canonicalResource('https://A.example/mcp/?x=1#y')).toBe('https://a.example/mcp');
  expect(canonicalResource('https://a.example/')).toBe('https://a.example');
});
