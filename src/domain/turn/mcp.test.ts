import { expect, test } from 'vitest';
import { calling, DOCS, listed, mcpTool, McpScenario } from '../../../test/support/mcp-scenario.ts';
import { OTHER_WORKER } from '../../../test/support/sessions.ts';
import { isCallingMcp } from './mcp-calls.ts';
import { signInsOf } from './sign-ins.ts';
import { declaredTools } from './steps/tools.ts';
import { statusOf, waitsOf } from './summary.ts';

const done = { kind: 'result', outcome: { kind: 'completed', output: 'found' } } as const;
const form = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
const question = {
  kind: 'question',
  question: { prompt: 'Your name?', schema: form, url: null },
  state: 'opaque',
} as const;
const signIn = { vaultId: 'va_1', credentialId: 'cr_1' };
const credential = { ...signIn, grants: 1 };
const needsAuth = { kind: 'needs_auth', credential, message: 'It refuses the token.' } as const;
const names = (life: McpScenario): string[] => {
  const { threads } = life.turn;
  return declaredTools(life.session.manifest, threads['root'] ?? expect.unreachable()).map(({ name }) => name);
};

test('before its first model call a turn lists the tools of its servers, once', () => {
  const life = McpScenario.of([DOCS]);
  expect(life.message()).toEqual(['command.message', 'turn.started', 'segment.claimed', 'mcp.tools.requested']);
  expect(life.list({ docs: listed(mcpTool('find')) })).toEqual(['mcp.state', 'mcp.tools.listed', 'model.requested']);
  expect(life.last('mcp.state')).toMatchObject({
    server: 'docs',
    state: 'connected',
    toolCount: 1,
    tools: ['docs_find'],
  });
  expect(names(life)).toEqual(['docs_find']);
  life.answer('Searching.', [{ name: 'docs_find' }]);
  expect(life.end(done)).toEqual(['action.completed', 'model.requested']);
  expect(life.answer('Found.')).toContain('turn.completed');
});

test('the tools are recorded again when they have changed, and not otherwise', () => {
  const life = McpScenario.of([DOCS]);
  life.message();
  life.list({ docs: listed(mcpTool('find')) });
  life.answer('One.');
  life.message();
  expect(life.list({ docs: listed(mcpTool('find')) })).toEqual(['mcp.tools.listed', 'model.requested']);
  expect(life.last('mcp.tools.listed').servers).toEqual([{ server: 'docs', tools: null }]);
  expect(names(life)).toEqual(['docs_find']);
  life.answer('Two.');
  life.message();
  const other = mcpTool('find', { digest: 'other' });
  expect(life.list({ docs: listed(other) })).toEqual(['mcp.state', 'mcp.tools.listed', 'model.requested']);
  expect(life.last('mcp.tools.listed').servers).toEqual([{ server: 'docs', tools: [other] }]);
});

test('names are unique over everything that a model may call, and there are not more tools than it can read', () => {
  const find = { name: 'docs_find', inputSchema: {} };
  const life = McpScenario.of([DOCS, { name: 'big', url: 'https://big.example/' }], { tools: [find] });
  life.message();
  const many = Array.from({ length: 200 }, (_, n) => mcpTool(`t${n}`, { name: `big_t${n}`, server: 'big' }));
  life.list({ docs: listed(mcpTool('find')), big: listed(...many) });
  expect(names(life).slice(0, 3)).toEqual(['docs_find', 'docs_find_2', 'big_t0']);
  expect(names(life)).toHaveLength(1 + 128);
  expect(life.last('mcp.state')).toMatchObject({ server: 'big', toolCount: 127 });
  expect(life.last('mcp.state').reason).toMatch(/^73 of its tools are left out/);
});

test('without a server that it requires, a turn fails; a retry of it asks again', () => {
  const life = McpScenario.of([DOCS]);
  life.message();
  expect(life.list({ docs: { kind: 'unavailable', reason: 'No answer.' } })).toEqual(['mcp.state', 'turn.failed']);
  expect(life.last('turn.failed').error).toMatchObject({ code: 'mcp_unavailable' });
  expect(life.retry()).toContain('mcp.tools.requested');
  expect(life.list({ docs: listed(mcpTool('find')) })).toContain('model.requested');
});

test('without a server that it does not require, a turn continues', () => {
  const life = McpScenario.of([{ ...DOCS, required: false }]);
  life.message();
  expect(life.list({ docs: { kind: 'unavailable', reason: 'No answer.' } })).toEqual([
    'mcp.state',
    'mcp.tools.listed',
    'model.requested',
  ]);
  expect(names(life)).toEqual([]);
});

test('a server that wants a sign-in pauses the turn; the sign-in itself continues it', () => {
  const life = McpScenario.of([DOCS]);
  life.message();
  expect(life.list({ docs: needsAuth })).toEqual([
    'mcp.state',
    'interaction.opened',
    'turn.paused',
    'segment.released',
  ]);
  expect(statusOf(life.turn)).toBe('paused');
  expect(life.last('turn.paused').interactions).toEqual([
    {
      interactionId: expect.any(String) as string,
      kind: 'question',
      server: 'docs',
      prompt: expect.any(String) as string,
      ...signIn,
    },
  ]);
  life.ms += 3 * 86_400_000;
  expect(life.signIn('in_other')).toEqual([]);
  const continued = ['interaction.withdrawn', 'segment.claimed', 'mcp.tools.requested', 'turn.extended'];
  const [first] = signInsOf(life.turn);
  expect(first).toMatchObject(credential);
  expect(life.signIn(first?.interactionId ?? '')).toEqual(continued);
  life.list({ docs: needsAuth });
  const [asked] = life.interactions;
  // The news of the first sign-in, again: this is another question.
  expect(life.signIn(first?.interactionId ?? '')).toEqual([]);
  expect(life.respond(asked?.interactionId ?? '', 'done')).toContain('mcp.tools.requested');
  expect(life.signIn(asked?.interactionId ?? '')).toEqual([]);
});

test('a call begins with the step that asks for it, and ends with a result', () => {
  const life = calling(mcpTool('find'));
  expect(life.last('mcp.requested')).toMatchObject({
    server: 'docs',
    tool: 'find',
    name: 'docs_find',
    input: { q: 'x' },
  });
  expect(statusOf(life.turn)).toBe('running');
  life.end(done);
  expect(life.last('action.completed')).toMatchObject({ kind: 'mcp', toolName: 'docs_find', outcome: done.outcome });
  expect(life.session.conversation.messages.at(-1)).toMatchObject({ role: 'tool', output: 'found' });
});

test('a call that is lost with its worker is in doubt, and a person resolves it', () => {
  for (const [resolution, then] of [
    ['retry', 'mcp.repeated'],
    ['fail', 'action.completed'],
    ['result', 'action.completed'],
  ]) {
    const life = calling(mcpTool('write'));
    const [call] = life.mcpCalls;
    expect(life.takeOver(OTHER_WORKER)).toEqual([
      ...['segment.claimed', 'effect.uncertain', 'turn.uncertain', 'segment.released'],
    ]);
    const { effectId = '' } = call ?? {};
    expect(life.last('effect.uncertain')).toMatchObject({ kind: 'mcp', reason: 'lost', effectId });
    expect(waitsOf(life.turn)).toMatchObject([{ kind: 'effect', id: effectId, toolName: 'docs_write' }]);
    // The worker that was lost answers after all: by now a person may have acted on the doubt.
    expect(life.end(done, effectId)).toEqual([]);
    expect(life.respond(effectId, 'what?')).toEqual(['rejected: invalid_request']);
    expect(life.respond(effectId, { resolution })).toContain(then);
    expect(life.respond(effectId, { resolution })).toEqual(['rejected: session_not_waiting']);
    expect(life.mcpCalls.map(({ status }) => status)).toEqual(resolution === 'retry' ? ['called'] : []);
  }
});

test('a call that may be repeated is made again by the next worker', () => {
  const life = calling(mcpTool('find', { repeatable: true }));
  const [call] = life.mcpCalls;
  expect(life.takeOver(OTHER_WORKER)).toEqual(['segment.claimed']);
  expect(life.mcpCalls).toEqual([call]);
  expect(life.end(done)).toContain('action.completed');
});

test('a call that no worker has begun is not lost with one', () => {
  const life = calling(mcpTool('write'), { approval: 'always' });
  life.workerId = null;
  life.approve(life.interactions[0]?.interactionId ?? '', true);
  expect(life.turn).toMatchObject({ claim: null, wanted: true });
  expect(life.takeOver(OTHER_WORKER)).toEqual(['segment.claimed']);
  expect(life.mcpCalls).toMatchObject([{ status: 'called' }]);
  expect(life.takeOver('wk_c')).toContain('effect.uncertain');
});

test('a person is asked before a call is made, sees what would be called, and may refuse it', () => {
  const life = calling(mcpTool('write'), { approval: 'writes' });
  expect(life.last('mcp.submitted')).toMatchObject({ toolName: 'docs_write', input: { q: 'x' } });
  expect(life.last('turn.paused').interactions).toMatchObject([
    { kind: 'approval', toolName: 'docs_write', server: 'docs', input: { q: 'x' } },
  ]);
  expect(life.interactions[0]?.prompt).toContain('Does write.');
  expect(life.approve(life.interactions[0]?.interactionId ?? '', false, 'not now')).toContain('action.completed');
  const { outcome, actionId } = life.last('action.completed');
  expect(outcome).toMatchObject({ kind: 'failed', code: 'approval_denied' });
  expect(actionId).toBe(life.last('mcp.submitted').actionId);
});

test('a tool that only reads is called without being asked for, where only writes are', () => {
  const life = calling(mcpTool('find', { readOnly: true }), { approval: 'writes' });
  expect(life.mcpCalls).toMatchObject([{ status: 'called' }]);
  expect(calling(mcpTool('find', { readOnly: true }), { approval: 'always' }).mcpCalls).toEqual([]);
});

test('a tool that is no longer what was approved is asked about again, under the same action', () => {
  const life = calling(mcpTool('write'), { approval: 'always' });
  life.approve(life.interactions[0]?.interactionId ?? '', true);
  expect(life.last('mcp.requested').digest).toBe('digest of write');
  const tool = mcpTool('write', { digest: 'changed', description: 'Deletes everything.' });
  expect(life.end({ kind: 'changed', tool })).toEqual([
    ...['mcp.withdrawn', 'interaction.opened', 'turn.paused', 'segment.released'],
  ]);
  expect(life.interactions).toMatchObject([{ kind: 'approval', actionId: life.last('mcp.submitted').actionId }]);
  expect(life.interactions[0]?.prompt).toMatch(/has changed.*Deletes everything/);
  life.approve(life.interactions[0]?.interactionId ?? '', true);
  expect(life.last('mcp.requested').digest).toBe('changed');
  expect(life.end({ kind: 'changed', tool: null })).toContain('action.completed');
  expect(life.last('action.completed').outcome).toMatchObject({ code: 'tool_unknown' });
});

test('a question pauses the turn; a valid answer calls again with what the server wants back', () => {
  const life = calling(mcpTool('write'));
  const { effectId = '' } = life.mcpCalls[0] ?? {};
  expect(life.end(question)).toEqual(['mcp.held', 'interaction.opened', 'turn.paused', 'segment.released']);
  const { interactionId = '' } = life.interactions[0] ?? {};
  expect(life.interactions[0]).toMatchObject({
    kind: 'question',
    schema: form,
    server: 'docs',
    toolName: 'docs_write',
  });
  expect(life.respond(interactionId, { name: 1 })).toEqual(['rejected: invalid_request']);
  expect(life.respond(interactionId, 'Ada')).toEqual(['rejected: invalid_request']);
  expect(life.respond(interactionId, { action: 'accept' })).toEqual(['rejected: invalid_request']);
  expect(life.respond(interactionId, { name: 'Ada' })).toContain('mcp.repeated');
  expect(life.mcpCalls).toMatchObject([{ status: 'called', resume: { state: 'opaque', value: { name: 'Ada' } } }]);
  expect(life.mcpCalls[0]?.effectId).not.toBe(effectId);
  life.takeOver(OTHER_WORKER);
  life.takeOver('wk_c');
  const doubt = life.last('effect.uncertain').effectId;
  life.respond(doubt, { resolution: 'retry' });
  expect(life.mcpCalls).toMatchObject([{ status: 'called', resume: { state: 'opaque', value: { name: 'Ada' } } }]);
});

test.each([[{ action: 'decline' }], [{ action: 'cancel' }], [{ action: 'accept', content: { name: 'Ada' } }]])(
  'a question is answered with %j',
  (value) => {
    const life = calling(mcpTool('write'));
    life.end(question);
    expect(life.respond(life.interactions[0]?.interactionId ?? '', value)).toContain('mcp.repeated');
    expect(life.mcpCalls[0]?.resume).toEqual({ state: 'opaque', value });
  },
);

test('a call that wants a sign-in waits for it, and keeps the answer that it had', () => {
  const life = calling(mcpTool('write'));
  life.end(question);
  life.respond(life.interactions[0]?.interactionId ?? '', { name: 'Ada' });
  expect(life.end(needsAuth)).toEqual([
    'mcp.state',
    'mcp.held',
    'interaction.opened',
    'turn.paused',
    'segment.released',
  ]);
  expect(life.interactions).toMatchObject([{ ...credential, server: 'docs' }]);
  expect(life.signIn(life.interactions[0]?.interactionId ?? '')).toContain('mcp.repeated');
  expect(life.mcpCalls).toMatchObject([{ status: 'called', resume: { state: 'opaque', value: { name: 'Ada' } } }]);
  life.end(needsAuth);
  expect(life.respond(life.interactions[0]?.interactionId ?? '', 'done')).toContain('mcp.repeated');
  expect(life.mcpCalls).toMatchObject([{ status: 'called', resume: { state: 'opaque', value: { name: 'Ada' } } }]);
});

test('a server that is away in the middle of a turn fails it; a retry makes the call', () => {
  const life = calling(mcpTool('write'));
  expect(life.end({ kind: 'unavailable', reason: 'No answer.' })).toEqual([
    'mcp.state',
    'mcp.withdrawn',
    'turn.failed',
  ]);
  expect(life.retry()).toContain('mcp.requested');
  const optional = calling(mcpTool('write'), { required: false });
  optional.end({ kind: 'unavailable', reason: 'No answer.' });
  expect(optional.last('action.completed').outcome).toMatchObject({ kind: 'failed', code: 'mcp_unavailable' });
});

test('a call that was under way when its turn failed is not made again by a retry, unless it may be repeated', () => {
  const life = calling(mcpTool('write'));
  expect(life.fail()).toEqual(['effect.uncertain', 'turn.failed']);
  expect(life.last('effect.uncertain').reason).toBe('cancelled');
  expect(life.retry()).not.toContain('mcp.requested');
  expect(life.last('tool.completed').outcome).toMatchObject({ code: 'effect_lost' });
  const repeatable = calling(mcpTool('find', { repeatable: true }));
  repeatable.fail();
  expect(repeatable.retry()).toContain('mcp.requested');
});

test('cancelling a turn ends what it asked and called', () => {
  const life = calling(mcpTool('write'));
  expect(life.cancel()).toEqual(['command.cancel', 'effect.uncertain', 'turn.cancelled']);
  const asked = calling(mcpTool('write'));
  asked.end(question);
  expect(asked.cancel()).toEqual(['command.cancel', 'mcp.withdrawn', 'interaction.withdrawn', 'turn.cancelled']);
});

test('an agent used as a tool has servers of its own', () => {
  const life = new McpScenario(
    { agents: [{ agentId: 'helper', description: 'Helps.' }] },
    {
      helper: { mcpServers: [DOCS] },
    },
  );
  life.message();
  life.answer('', [{ name: 'helper', input: { task: 'look' } }]);
  const { delegationId } = life.last('delegation.started').agent;
  expect(Object.values(life.turn.threads).map(isCallingMcp)).toEqual([false, true]);
  expect(life.list({ docs: listed(mcpTool('find')) }, delegationId)).toContain('model.requested');
  expect(life.last('mcp.state').agent).toMatchObject({ delegationId });
  life.answer('', [{ name: 'docs_find' }], delegationId);
  life.takeOver(OTHER_WORKER);
  expect(waitsOf(life.turn)).toHaveLength(1);
});
