import { describe, expect, test } from 'vitest';
import type { LoggedEvent } from './checks.ts';
import { callsOfServers, checkGrant, checkTools } from './tool-checks.ts';

const event = (type: string, data: object): LoggedEvent => ({
  type,
  data: { turnId: 't', callId: 'c', ...data },
  isCanonical: true,
});
const requested = event('mcp.requested', { tool: 'act', input: { mark: 'm' } });
const again = event('mcp.repeated', {});
const completed = (output: string) =>
  event('action.completed', { kind: 'mcp', outcome: { kind: 'completed', output } });
const failed = event('action.completed', { kind: 'mcp', outcome: { kind: 'failed', code: 'x', message: 'x' } });
const done = (id: number, mark = 'm') => ({ id, tool: 'act', mark });

describe('calls of servers', () => {
  test.each([
    ['carried out as asked', [requested, completed('1')], [done(1)], 0],
    ['asked for and lost on the way', [requested, failed], [], 0],
    ['carried out, and its result lost', [requested, failed], [done(1)], 0],
    ['carried out again because a person said so', [requested, again, completed('2')], [done(1), done(2)], 0],
    ['carried out twice', [requested, completed('2')], [done(1), done(2)], 1],
    ['carried out more often than a person said', [requested, again, completed('1')], [done(1), done(2), done(3)], 1],
    ['carried out, and in no log', [], [done(1)], 1],
    ['with a result that was never given', [requested, completed('2')], [done(1)], 1],
    ['with the result of another', [requested, completed('2')], [done(1), done(2, 'n')], 2],
  ])('%s', (_what, events, executions, problems) => {
    expect(checkTools(executions, callsOfServers(events), new Set()).problems).toHaveLength(problems);
  });

  test('that only read may be carried out more often', () => {
    const calls = callsOfServers([requested, completed('2')]);
    expect(checkTools([done(1), done(2)], calls, new Set(['act']))).toEqual({ doubled: 0, problems: [] });
    expect(checkTools([done(1), done(2)], calls, new Set()).doubled).toBe(1);
  });
});

describe('a grant', () => {
  const begun = event('credential.refresh_started', {});
  const refreshed = event('credential.refreshed', {});

  test.each([
    ['refreshed', ['a'], [begun, refreshed], 0],
    ['refreshed by a node that died before it asked', [], [begun], 0],
    ['used without a word in the log', ['a', 'b'], [begun, refreshed], 1],
    ['given up', ['a'], [begun, event('credential.refresh_failed', { needsAuth: true })], 1],
    ['refused', [], [event('credential.refused', {})], 1],
    ['kept although a refresh failed', ['a'], [begun, event('credential.refresh_failed', { needsAuth: false })], 0],
  ])('%s', (_what, used, vault, problems) => {
    expect(checkGrant({ used, isRevoked: false }, vault)).toHaveLength(problems);
  });

  test('that is revoked is lost', () => {
    expect(checkGrant({ used: [], isRevoked: true }, [])).toHaveLength(1);
  });
});
