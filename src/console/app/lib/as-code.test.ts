import { execFileSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { asClientCode, asCurl } from './as-code.ts';

const CALL = {
  operation: 'POST /v1/sessions/{sessionId}/commands',
  params: { sessionId: 'team/a b' },
  body: { type: 'message', content: `it's "$HOME" \`id\`` },
};

it('writes a command line whose arguments a shell reads as they were meant', () => {
  const line = asCurl(CALL, 'tn_1').replace(/^curl/, `printf '%s\\n'`);
  const read = execFileSync('sh', ['-c', line], { encoding: 'utf8', env: { AGENT_HOST_URL: 'http://host' } });
  expect(read.split('\n')).toContain('http://host/v1/sessions/team%2Fa%20b/commands');
  expect(read.split('\n')).toContain(JSON.stringify(CALL.body));
});

it('sends no body and no method with a read', () => {
  const line = asCurl({ operation: 'GET /v1/sessions', query: { limit: 5, agentId: undefined } }, 'tn_1');
  expect(line).toContain(`"$AGENT_HOST_URL"'/v1/sessions?limit=5'`);
  expect(line).not.toMatch(/ -X | -d /);
});

it('writes the same call with the client', () => {
  expect(asClientCode(CALL, 'tn_1')).toContain(`client.request('POST /v1/sessions/{sessionId}/commands', {`);
  expect(asClientCode({ operation: 'GET /v1/me' }, 'tn_1')).toContain(`client.request('GET /v1/me', {});`);
});

it('writes what is of the whole Host with its key, and no tenant', () => {
  const call = { operation: 'GET /v1/admin/status' };
  for (const text of [asCurl(call, 'tn_1'), asClientCode(call, 'tn_1')]) {
    expect(text).toContain('AGENT_HOST_ADMIN_KEY');
    expect(text).not.toContain('tn_1');
  }
});
