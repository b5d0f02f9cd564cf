import { expect, test } from 'vitest';
import { MANIFEST, TURN, usage } from '../../../test/support/sessions.ts';
import { isCanonical, toCanonical } from './canonical.ts';
import { sessionEventSchemas } from './events.ts';
import type { SessionEvent } from './events.ts';

type Types = SessionEvent['type'];
type DataOf<T extends Types> = Extract<SessionEvent, { type: T }>['data'];

const ERROR = { code: 'c', message: 'm' };
const AGENT = { id: 'helper', path: 'a/helper', delegationId: 'dg_1' };
const ACTION = { turnId: TURN, actionId: 'ac_1', generation: 2, agent: AGENT };
const OUTCOME = { kind: 'completed', output: 1 } as const;
const HOOK = { at: 'before', scope: 'step' } as const;
const ASKED = {
  interactionId: 'in_1',
  kind: 'approval',
  actionId: 'ac_1',
  toolName: 'find',
  input: {},
  prompt: 'p',
  schema: {},
  budgetId: 'b',
  server: 'docs',
  vaultId: 'va_1',
  credentialId: 'cr_1',
  url: 'https://mcp.example/',
} as const;
const TARGET = { server: 'docs', tool: 'find', digest: 'd', repeatable: true } as const;
const MCP_CALL = { turnId: TURN, callId: 'c', effectId: 'ef_1', agent: AGENT } as const;
const FIGURES = { finishReason: 'stop', latencyMs: 2, firstTokenMs: 1 } as const;
const CALL = { turnId: TURN, callId: 'mc_1', step: 0 };

/** One event of each type with every optional member, so that what is shown of them can be read off. */
const FULL: { readonly [T in Types]: DataOf<T> } = {
  'session.created': {
    agentId: 'a',
    agentVersion: 1,
    manifestHash: 'h',
    manifest: MANIFEST,
    agents: { helper: { version: 1, manifest: MANIFEST } },
    sandbox: { sandboxId: 'sb_1', own: true },
    subject: 'ada',
    info: {},
    labels: {},
    bodyHash: 'b',
    vaultIds: ['va_1'],
    origin: {
      parent: { sessionId: 's', position: 2 },
      ancestry: [{ sessionId: 's', shard: 0, createdPosition: 1, position: 2, index: 0 }],
      last: { ancestor: 0, position: 1, index: 1 },
    },
  },
  'session.forked': {
    ...{ sessionId: 'f', since: 0, at: { ancestor: 0, position: 1, index: 1 } },
    sandbox: { sandboxId: 'sb_2', spec: {}, files: null },
  },
  'session.fork.released': { sessionId: 'f', position: 1 },
  'session.updated': { labels: {}, vaultIds: ['va_1'] },
  'session.deleted': {},
  'artifact.created': {
    turnId: TURN,
    artifactId: 'af_1',
    kind: 'file',
    name: 'n',
    contentType: 'text/plain',
    version: 1,
    size: 2,
    sha256: 'h',
    source: 'upload',
  },
  'artifact.deleted': { turnId: TURN, artifactId: 'af_1', name: 'n' },
  'command.message': {
    turnId: TURN,
    requestId: 'r',
    subject: 'ada',
    content: 'c',
    parts: [{ type: 'text', text: 't' }],
    whenBusy: 'refuse',
    manifest: MANIFEST,
    traceparent: `00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`,
  },
  'command.cancel': { turnId: TURN, requestId: 'r', subject: 'ada', namedTurnId: 'tu_named', reason: 'because' },
  'command.retry': { turnId: TURN, requestId: 'r', subject: 'ada', retryOf: 'tu_1' },
  'command.approve': {
    turnId: TURN,
    requestId: 'r',
    subject: 'ada',
    interactionId: 'in_1',
    approved: true,
    reason: 'r',
  },
  'command.respond': { turnId: TURN, requestId: 'r', subject: 'ada', interactionId: 'in_1', value: 1 },
  'turn.started': {
    turnId: TURN,
    deadlineAt: 'd',
    maxSteps: 1,
    maxCostUsd: 1,
    model: null,
    manifest: null,
    agents: {},
    retryOf: 'tu_1',
    traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  },
  'turn.queued': {
    turnId: TURN,
    maxTurnSeconds: 1,
    maxSteps: 1,
    maxCostUsd: 1,
    model: null,
    manifest: null,
    agents: {},
  },
  'turn.extended': { turnId: TURN, deadlineAt: 'd' },
  'turn.raised': { turnId: TURN, maxCostUsd: 1 },
  'turn.paused': { turnId: TURN, interactions: [ASKED] },
  'turn.waiting': { turnId: TURN, actionIds: ['ac_1'] },
  'turn.uncertain': { turnId: TURN, effectIds: ['ac_1'] },
  'segment.claimed': { turnId: TURN, epoch: 1, workerId: 'wk' },
  'segment.released': { turnId: TURN, epoch: 1, resting: true, until: 'u' },
  'segment.wanted': { turnId: TURN },
  'action.pending': {
    ...ACTION,
    kind: 'tool',
    agentId: 'a',
    toolName: 'find',
    hook: HOOK,
    callId: 'c',
    input: {},
    resume: { interactionId: 'in_1', value: 1 },
  },
  'action.claimed': { ...ACTION, claimId: 'cl', requestId: 'r', leaseExpiresAt: 'l', leaseMs: 1, timeoutAt: 't' },
  'action.answered': {
    ...{ turnId: TURN, actionId: 'ac_1', generation: 1, claimId: 'cl_1' },
    ...{ requestId: 'r', outcomeHash: 'h' },
  },
  'action.extended': { turnId: TURN, actionId: 'ac_1', generation: 1, leaseExpiresAt: 'l' },
  'action.completed': {
    ...ACTION,
    kind: 'tool',
    toolName: 'find',
    hook: HOOK,
    callId: 'c',
    outcome: OUTCOME,
    files: [{ artifactId: 'af_1', version: 1 }],
  },
  'action.uncertain': ACTION,
  'action.withdrawn': { turnId: TURN, actionId: 'ac_1' },
  'interaction.opened': { turnId: TURN, agentId: 'a', callId: 'c', agent: AGENT, ...ASKED, mcp: TARGET, grants: 1 },
  'interaction.withdrawn': { turnId: TURN, interactionId: 'in_1' },
  'delegation.started': { turnId: TURN, agent: AGENT, callId: 'c', task: 't' },
  'delegation.completed': { turnId: TURN, agent: AGENT, callId: 'c', status: 'completed', outcome: OUTCOME },
  'outputs.requested': { turnId: TURN },
  'outputs.exported': { turnId: TURN, version: 1 },
  'mcp.tools.requested': { turnId: TURN, agent: AGENT },
  'mcp.tools.listed': {
    ...{ turnId: TURN, agentId: 'a', agent: AGENT },
    servers: [
      {
        server: 'docs',
        tools: [{ name: 'docs_find', ...TARGET, readOnly: true, description: '', inputSchema: {} }],
      },
    ],
  },
  'mcp.state': {
    ...{ turnId: TURN, agentId: 'a', agent: AGENT, server: 'docs', state: 'connected' },
    ...{ toolCount: 1, tools: ['docs_find'], reason: 'r' },
  },
  'mcp.submitted': { turnId: TURN, actionId: 'ac_1', callId: 'c', toolName: 'docs_find', input: {}, agent: AGENT },
  'mcp.requested': { ...MCP_CALL, ...TARGET, actionId: 'ac_1', agentId: 'a', name: 'docs_find', input: {} },
  'mcp.repeated': MCP_CALL,
  'mcp.held': { ...MCP_CALL, interactionId: 'in_1', state: 's' },
  'mcp.asked': { ...MCP_CALL, interactionId: 'in_1' },
  'mcp.withdrawn': MCP_CALL,
  'sandbox.requested': { turnId: TURN, actionId: 'ac', callId: 'c', name: 'bash', input: {}, agent: AGENT },
  'sandbox.state': { turnId: TURN, sandboxId: 'sb_1', state: 'running', reason: 'r' },
  'sandbox.exec': {
    ...{ turnId: TURN, callId: 'c', sandboxId: 'sb_1', tool: 'bash', command: 'ls', path: 'p', exitCode: 0 },
    ...{ durationMs: 1, cpuMs: 1, bytesWritten: 0, outcome: 'completed', agent: AGENT },
    files: { manifest: 'a'.repeat(64), object: 'ws_1/wo_1-m', workspaces: ['ws_1'], files: 1, bytes: 1 },
    earlier: { n: 1, last: null, skip: null },
  },
  'conversation.compacted': { turnId: TURN, summary: 's', head: 0, keep: 1, partChars: 1, agent: AGENT },
  'output.rejected': { turnId: TURN, message: 'm', agent: AGENT },
  'model.requested': {
    ...CALL,
    effectId: 'ef_1',
    attempt: 0,
    provider: 'fixture',
    model: 'm',
    purpose: 'summary',
    agent: AGENT,
  },
  'model.withheld': { turnId: TURN, callId: 'mc_1', overflow: true },
  'model.completed': { ...CALL, ...FIGURES, usage: usage() },
  'model.failed': { ...CALL, ...FIGURES, error: ERROR, usage: usage(), retryAt: null, fallback: true, overflow: true },
  'model.reported': { turnId: TURN, callId: 'mc_1', ...FIGURES, usage: usage() },
  'effect.uncertain': {
    turnId: TURN,
    effectId: 'ef_1',
    kind: 'model',
    reason: 'lost',
    callId: 'mc_1',
    agentId: 'a',
    toolName: 't',
    agent: AGENT,
  },
  'message.assistant': {
    turnId: TURN,
    step: 3,
    modelCallId: 'mc_1',
    text: 't',
    toolCalls: [{ callId: 'c', name: 'n', input: 1 }],
    truncated: true,
    reasoning: 'r',
    thinking: { provider: 'p', model: 'm', parts: [{ kind: 'thought', text: 'secret', seal: { p: { s: 'secret' } } }] },
    agent: AGENT,
  },
  'tool.completed': { turnId: TURN, callId: 'c', name: 'n', outcome: OUTCOME, agent: AGENT },
  'turn.completed': { turnId: TURN, output: 'o', usage: usage() },
  'turn.failed': { turnId: TURN, error: ERROR },
  'turn.cancelled': { turnId: TURN, reason: 'because' },
};

/** What the wire shows, member by member: a new member is invisible until it is named here and there. */
const SHOWN: Partial<Record<Types, readonly string[]>> = {
  'command.message': ['content', 'manifest', 'parts', 'requestId', 'subject', 'whenBusy'],
  'command.cancel': ['reason', 'requestId', 'subject', 'turnId'],
  'command.approve': ['approved', 'interactionId', 'reason', 'requestId', 'subject'],
  'command.retry': ['requestId', 'retryOf', 'subject'],
  'command.respond': ['interactionId', 'requestId', 'subject', 'value'],
  'message.assistant': ['agent', 'modelCallId', 'reasoning', 'text', 'toolCalls', 'truncated'],
  'action.pending': ['actionId', 'agent', 'callId', 'generation', 'hook', 'input', 'kind', 'toolName'],
  'action.claimed': ['actionId', 'agent', 'generation'],
  'action.completed': ['actionId', 'agent', 'callId', 'hook', 'kind', 'outcome', 'toolName'],
  'action.uncertain': ['actionId', 'agent', 'generation'],
  'delegation.started': ['agent', 'callId', 'task'],
  'delegation.completed': ['agent', 'callId', 'outcome', 'status'],
  'mcp.state': ['agent', 'reason', 'server', 'state', 'toolCount', 'tools'],
  'mcp.submitted': ['actionId', 'agent', 'callId', 'generation', 'input', 'kind', 'toolName'],
  'sandbox.state': ['reason', 'sandboxId', 'state'],
  'sandbox.exec': [
    ...['agent', 'bytesWritten', 'command', 'cpuMs', 'durationMs', 'exitCode', 'outcome', 'path', 'sandboxId', 'tool'],
  ],
  'effect.uncertain': ['agent', 'effectId', 'kind', 'reason'],
  'turn.paused': ['interactions'],
  'turn.waiting': ['actionIds'],
  'turn.uncertain': ['effectIds'],
  'turn.completed': ['output', 'usage'],
  'turn.failed': ['error'],
  'turn.cancelled': ['reason'],
  'artifact.created': ['artifactId', 'contentType', 'kind', 'name', 'sha256', 'size', 'source', 'version'],
  'artifact.deleted': ['artifactId', 'name'],
};

const types = Object.keys(sessionEventSchemas) as Types[];
const eventOf = (type: Types): SessionEvent => ({ type, data: FULL[type] }) as SessionEvent;

test('the examples are events, and have every member that there is', () => {
  expect(types.length).toBeGreaterThan(15);
  for (const type of types) {
    const schema = sessionEventSchemas[type];
    expect(schema.parse(FULL[type])).toEqual(FULL[type]);
    expect(Object.keys(FULL[type]).toSorted(), type).toEqual(Object.keys(schema.shape).toSorted());
  }
});

test.each(types)('%s shows what is allowed and nothing else', (type) => {
  const canonical = toCanonical(eventOf(type));
  const shown = SHOWN[type];
  const members = canonical === null ? undefined : Object.keys(canonical.payload).toSorted();
  const shownAs = type === 'mcp.submitted' ? 'action.pending' : type;
  expect([canonical?.type, canonical?.turnId, members]).toEqual(
    shown === undefined ? [undefined, undefined, undefined] : [shownAs, TURN, shown],
  );
});

test.each(types.filter((type) => SHOWN[type] !== undefined && !type.startsWith('command.')))(
  '%s: a member that a later version adds does not leak',
  (type) => {
    const leaky: unknown = { type, data: { ...FULL[type], secret: 'secret' } };
    expect(JSON.stringify(toCanonical(leaky as SessionEvent))).not.toContain('secret');
  },
);

test('a cancel shows the turn that it named as its payload, and the one it ended beside it', () => {
  expect(toCanonical(eventOf('command.cancel'))).toMatchObject({ turnId: TURN, payload: { turnId: 'tu_named' } });
  const unnamed: SessionEvent = { type: 'command.cancel', data: { turnId: null, requestId: 'r' } };
  expect(toCanonical(unnamed)).toEqual({ type: 'command.cancel', turnId: null, payload: { requestId: 'r' } });
});

test('members that are absent stay absent', () => {
  const bare: SessionEvent = { type: 'turn.cancelled', data: { turnId: TURN } };
  expect(toCanonical(bare)).toEqual({ type: 'turn.cancelled', turnId: TURN, payload: {} });
});

test('the short question and the long one agree on every type', () => {
  for (const [type, data] of Object.entries(FULL)) {
    const event = { type, data } as SessionEvent;
    expect([type, isCanonical(event.type)]).toEqual([type, toCanonical(event) !== null]);
  }
});
