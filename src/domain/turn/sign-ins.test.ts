import { expect, test } from 'vitest';
import { DOCS, listed, mcpTool, McpScenario } from '../../../test/support/mcp-scenario.ts';
import { OTHER_WORKER, WORKER } from '../../../test/support/sessions.ts';
import { signInsOf } from './sign-ins.ts';

const refused = (vaultId: string) => {
  const credential = { vaultId, credentialId: 'cr_1', grants: 1 };
  return { kind: 'needs_auth', credential, message: 'Refused.' } as const;
};
const awaited = (life: McpScenario): readonly string[] =>
  signInsOf(life.turn).map(({ interactionId }) => interactionId);

/** Given a turn whose two calls wait for sign-ins, in that order, of these vaults. */
function waiting(...vaultIds: readonly [string, string]): McpScenario {
  const life = McpScenario.of([DOCS]);
  life.message();
  life.list({ docs: listed(mcpTool('write'), mcpTool('send')) });
  life.answer('', [{ name: 'docs_write' }, { name: 'docs_send' }]);
  const effects = life.mcpCalls.map(({ effectId }) => effectId);
  for (const [n, vaultId] of vaultIds.entries()) life.end(refused(vaultId), effects[n]);
  expect(life.turn.claim).toBe(null);
  return life;
}

const statuses = (life: McpScenario): readonly string[] => life.mcpCalls.map(({ status }) => status);

test('one sign-in continues every call that waits for it, once', () => {
  const life = waiting('va_1', 'va_1');
  const both = awaited(life);
  expect(both).toHaveLength(2);
  const continued = ['interaction.withdrawn', 'interaction.withdrawn', 'mcp.repeated', 'mcp.repeated'];
  expect(life.signIn(...both).slice(0, 4)).toEqual(continued);
  expect(statuses(life)).toEqual(['called', 'called']);
  expect(life.signIn(...both)).toEqual([]);
  expect(life.respond(both[0] ?? '', 'done')).toEqual(['rejected: session_not_waiting']);
});

test('a sign-in leaves what waits for another vault as it is', () => {
  const life = waiting('va_1', 'va_2');
  const [mine = '', other] = awaited(life);
  expect(life.signIn(mine)).toContain('mcp.repeated');
  expect(statuses(life)).toEqual(['called', 'held']);
  expect(awaited(life)).toEqual([other]);
});

test('a sign-in whose question a person has answered changes nothing, nor does one of a turn that is over', () => {
  const life = waiting('va_1', 'va_2');
  const both = awaited(life);
  expect(life.respond(both[0] ?? '', 'done')).toContain('mcp.repeated');
  expect(life.signIn(both[0] ?? '')).toEqual([]);
  life.cancel();
  expect(life.signIn(...both)).toEqual([]);
});

test('a sign-in for which there is no room wants a worker, and the next one makes the call', () => {
  const life = waiting('va_1', 'va_2');
  life.workerId = null;
  expect(life.signIn(...awaited(life))).toEqual([
    ...['interaction.withdrawn', 'interaction.withdrawn', 'mcp.repeated', 'mcp.repeated'],
    ...['turn.extended', 'segment.wanted'],
  ]);
  expect(life.takeOver(OTHER_WORKER)).toEqual(['segment.claimed']);
  expect(statuses(life)).toEqual(['called', 'called']);
});

test('a turn that a worker holds stays its own', () => {
  const life = McpScenario.of([DOCS]);
  life.message();
  life.list({ docs: listed(mcpTool('write'), mcpTool('send')) });
  life.answer('', [{ name: 'docs_write' }, { name: 'docs_send' }]);
  life.end(refused('va_1'), life.mcpCalls[0]?.effectId);
  life.workerId = OTHER_WORKER;
  expect(life.signIn(...awaited(life))).toEqual(['interaction.withdrawn', 'mcp.repeated', 'turn.extended']);
  expect(life.turn.claim?.workerId).toBe(WORKER);
  expect(statuses(life)).toEqual(['called', 'called']);
});
