import { describe, expect, test } from 'vitest';
import { fold, open } from '../../test/support/given.ts';
import { created, MANIFEST, usage } from '../../test/support/sessions.ts';
import { Scenario } from '../../test/support/turn-scenario.ts';
import { initialSession } from '../domain/session/state.ts';
import { sessionType } from './aggregate.ts';

const CHARS = 10_000;
const long = 'x'.repeat(CHARS);
const plain = sessionType.weigh(fold(initialSession, [created()]));
const tools = [{ name: 'find', description: long, inputSchema: { type: 'object' } }];
const agents = { helper: { version: 1, manifest: { ...MANIFEST, instructions: long } } };

test('a session weighs what it knows of its artifacts', () => {
  const empty = open(fold(initialSession, [created()]));
  const full = { ...empty, artifacts: { ...empty.artifacts, count: 10_000 } };
  expect(sessionType.weigh(full) - sessionType.weigh(empty)).toBe(1_000_000);
});

describe('a session weighs all that it keeps', () => {
  test.each([
    ['the tools of its manifest', { manifest: { ...MANIFEST, tools } }],
    ['the agents that it uses', { agents }],
  ])('%s', (_, opening) => {
    expect(sessionType.weigh(fold(initialSession, [created(opening)])) - plain).toBeGreaterThan(CHARS);
  });

  test('messages that wait, and the manifests that they brought', () => {
    const scenario = new Scenario();
    scenario.message();
    scenario.message({ content: long, whenBusy: 'queue' });
    scenario.message({ manifest: { ...MANIFEST, tools }, whenBusy: 'queue' });
    expect(sessionType.weigh(scenario.session) - plain).toBeGreaterThan(2 * CHARS);
  });

  test('what a turn was started with, and what it left when it failed', () => {
    const scenario = new Scenario();
    scenario.message({ manifest: { ...MANIFEST, tools } });
    expect(sessionType.weigh(scenario.session) - plain).toBeGreaterThan(CHARS);
    const error = { code: 'model_overloaded', message: 'Busy.' } as const;
    scenario.settle({ kind: 'failed', error, retryAfterMs: null, usage: usage() });
    expect(scenario.session.turn).toBeNull();
    expect(sessionType.weigh(scenario.session) - plain).toBeGreaterThan(CHARS);
  });

  test('the tools that MCP servers have listed', () => {
    const session = open(fold(initialSession, [created()]));
    const listed = {
      name: 'find',
      server: 's',
      tool: 'find',
      digest: 'd',
      repeatable: false,
      readOnly: true,
      description: long,
      inputSchema: {},
    };
    const mcp = { 'agents/a/s': { state: null, reason: null, tools: [listed] } };
    expect(sessionType.weigh({ ...session, mcp }) - plain).toBeGreaterThan(CHARS);
  });

  test('calls that wait for executors', () => {
    const scenario = new Scenario({ tools: [{ name: 'find', inputSchema: { type: 'object' } }] });
    scenario.message();
    scenario.answer('', [{ name: 'find', input: { text: long } }]);
    // In the conversation, too, and as a call that is open.
    expect(sessionType.weigh(scenario.session) - plain).toBeGreaterThan(3 * CHARS);
  });
});
