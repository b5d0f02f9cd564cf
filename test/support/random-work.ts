import fc from 'fast-check';
import type { Action } from '#src/domain/action/state.ts';
import type { Manifest } from '#src/domain/agent/manifest.ts';
import type { McpServerManifest } from '#src/domain/agent/mcp-servers.ts';
import type { ModelOutcome } from '#src/domain/turn/model-outcome.ts';
import { fail, handBack, shorten } from '#src/domain/turn/process.ts';
import { signInsOf } from '#src/domain/turn/sign-ins.ts';
import { decideTurn } from '#src/domain/session/decide.ts';
import { usage } from './sessions.ts';
import { START_MS } from './given.ts';
import { DOCS, listed, McpScenario, mcpTool } from './mcp-scenario.ts';
import { done } from './turn-scenario.ts';
import type { Called } from './turn-scenario.ts';

/** A session that meets everything which can happen to one, in an order that nobody planned. */

const find = { name: 'find', inputSchema: {} };
const careful = { ...find, name: 'careful', approval: 'always' as const };
const slow = { ...find, name: 'slow', timeoutSeconds: 20 };
const tools = [find, careful, slow];
const write = mcpTool('write');
const read = mcpTool('read', { repeatable: true, readOnly: true });

const calls: fc.Arbitrary<readonly Called[]> = fc.array(
  fc.constantFrom<Called>(
    { name: 'find' },
    { name: 'careful' },
    { name: 'slow' },
    { name: 'unknown' },
    { name: 'docs_write' },
    { name: 'docs_read' },
    { name: 'helper', input: { task: 'look' } },
    { name: 'helper', input: {} },
  ),
  { maxLength: 4 },
);

const failure = (change: Partial<Extract<ModelOutcome, { kind: 'failed' }>>): ModelOutcome => ({
  kind: 'failed',
  error: { code: 'overloaded', message: 'Busy.' },
  retryAfterMs: null,
  usage: usage(),
  ...change,
});

/** One thing that happens; `n` picks what it happens to, among what is there. */
interface Happening {
  readonly what: string;
  readonly n: number;
  readonly calls: readonly Called[];
  readonly ms: number;
}

const WHAT = [
  ...['answer', 'answer', 'answer', 'answer', 'done', 'done', 'fails', 'retry', 'overflow', 'shorten'],
  ...[
    'result',
    'result',
    'result',
    'failed',
    'ask',
    'claim',
    'claim',
    'claim',
    'heartbeat',
    'approve',
    'deny',
    'respond',
    'resolve',
  ],
  ...[
    'message',
    'message',
    'queue',
    'interrupt',
    'cancel',
    'cancelQueued',
    'takeOver',
    'look',
    'handBack',
    'fail',
    'raise',
  ],
  ...['list', 'list', 'list', 'list', 'listAuth', 'listAway', 'mcpDone', 'mcpDone', 'mcpDone'],
  ...['mcpAsk', 'mcpAskIn', 'mcpAuth', 'mcpAway', 'mcpChanged', 'mcpDoubt', 'mcpResolve', 'signIn'],
  'again',
  'again',
  'roomless',
  'expire',
  'expire',
];

export const happenings: fc.Arbitrary<readonly Happening[]> = fc.array(
  fc.record({
    what: fc.constantFrom(...WHAT),
    n: fc.nat({ max: 20 }),
    calls,
    ms: fc.oneof(fc.nat({ max: 500 }), fc.nat({ max: 40_000 })),
  }),
  { minLength: 40, maxLength: 120 },
);

export const manifests = fc.record({
  hooks: fc.uniqueArray(
    fc.constantFrom(
      { at: 'before', scope: 'turn' } as const,
      { at: 'before', scope: 'step' } as const,
      { at: 'after', scope: 'step' } as const,
      { at: 'after', scope: 'turn' } as const,
    ),
    { maxLength: 2 },
  ),
  mcpServers: fc.constantFrom<McpServerManifest[]>([], [], [DOCS], [{ ...DOCS, approval: 'writes', required: false }]),
  limits: fc.constantFrom({ maxSteps: 6, maxTurnSeconds: 120 }, { maxSteps: 6, maxTurnSeconds: 120, maxCostUsd: 0.8 }),
});

export function newLife(manifest: Partial<Manifest>): McpScenario {
  const agents = [{ agentId: 'helper', description: 'Helps.' }];
  const { mcpServers = [] } = manifest;
  return new McpScenario({ ...manifest, tools, agents }, { helper: { instructions: 'Help.', tools, mcpServers } });
}

const pick = <T>(list: readonly T[], n: number): T | undefined => list[n % Math.max(1, list.length)];

type Deed = (life: McpScenario, happening: Happening) => unknown;

/** What may happen at any time. */
const TO_SESSION: Readonly<Record<string, Deed>> = {
  message: (life, { n }) => life.message({ content: `m${n}` }, { workerId: n % 3 === 0 ? null : 'wk_a' }),
  queue: (life, { n }) => life.message({ content: `m${n}`, whenBusy: 'queue' }),
  interrupt: (life, { n }) => life.message({ content: `m${n}`, whenBusy: 'interrupt' }),
  cancel: (life) => life.cancel(),
  again: (life, { n }) => life.retry({}, { workerId: n % 3 === 0 ? null : 'wk_a' }),
  cancelQueued: (life, { n }) => life.cancel(pick(life.session.queue, n)?.turnId ?? 'tu_none'),
};

/** What happens to a turn that is active. */
const TO_TURN: Readonly<Record<string, Deed>> = {
  takeOver: (life, { n }) => life.takeOver(`wk_${n % 3}`),
  look: (life) => life.look(0, life.turn.claim?.workerId ?? life.workerId),
  roomless: (life) => life.look(0, life.turn.claim?.workerId ?? null),
  expire: (life) => life.look(31_000),
  handBack: (life) => act(life, (draft) => handBack(draft, life.turn.claim?.workerId ?? '')),
  fail: (life, { n }) => n === 0 && act(life, (draft) => fail(draft, { code: 'c', message: 'm' }, life.context())),
};

/** What the model of a thread does that has been asked. */
const TO_MODEL: Readonly<Record<string, (life: McpScenario, happening: Happening, threadId: string) => unknown>> = {
  answer: (life, { calls: called }, threadId) => life.answer('Working.', called, threadId),
  done: (life, _, threadId) => life.answer('Done.', [], threadId),
  fails: (life, { n }, threadId) => n < 5 && life.settle(failure({}), threadId),
  retry: (life, _, threadId) => life.settle(failure({ retryAfterMs: 0 }), threadId),
  overflow: (life, _, threadId) => life.settle(failure({ contextOverflow: true }), threadId),
  shorten: (life, _, threadId) =>
    act(life, (draft) => {
      const pending = life.turn.threads[threadId]?.pending;
      if (pending != null && pending.purpose === undefined) shorten(draft, pending.callId, life.context());
    }),
};

const CREDENTIAL = { vaultId: 'va_1', credentialId: 'cr_1', grants: 1 };
const NEEDS_AUTH = { kind: 'needs_auth', credential: CREDENTIAL, message: 'Refused.' } as const;
const AWAY = { kind: 'unavailable', reason: 'No answer.' } as const;
const ASKS = {
  kind: 'question',
  question: { prompt: 'Which?', schema: { type: 'object' }, url: null },
  state: 's',
} as const;

/** What the servers of a thread say about their tools. */
const TO_LISTING: Readonly<Record<string, (life: McpScenario, happening: Happening, threadId: string) => unknown>> = {
  list: (life, { n }, threadId) => life.list({ docs: n < 15 ? listed(write, read) : listed(read) }, threadId),
  listAuth: (life, _, threadId) => life.list({ docs: NEEDS_AUTH }, threadId),
  listAway: (life, { n }, threadId) => n < 8 && life.list({ docs: AWAY }, threadId),
};

/** What becomes of an attempt at a call of a server. */
const TO_MCP: Readonly<Record<string, (life: McpScenario, happening: Happening, effectId: string) => unknown>> = {
  mcpDone: (life, { n }, id) => life.end({ kind: 'result', outcome: done(n) }, id),
  mcpAsk: (life, _, id) => life.end(ASKS, id),
  mcpAskIn: (life, _, id) => life.askIn(id),
  mcpAuth: (life, _, id) => life.end(NEEDS_AUTH, id),
  mcpAway: (life, { n }, id) => n < 8 && life.end(AWAY, id),
  mcpChanged: (life, { n }, id) =>
    life.end({ kind: 'changed', tool: n < 8 ? null : { ...write, digest: `d${n}` } }, id),
  // Of a call that may be repeated the engine makes another attempt instead.
  mcpDoubt: (life, _, id) =>
    life.mcpCalls.some((call) => call.effectId === id && !call.repeatable) && life.end({ kind: 'in_doubt' }, id),
  mcpResolve: (life, { n }, id) => life.respond(id, { resolution: pick(['retry', 'fail', 'result'], n) }),
};

/** What becomes of an open action. */
const TO_ACTION: Readonly<Record<string, (life: McpScenario, happening: Happening, action: Action) => unknown>> = {
  claim: (life, { n }, action) => life.claim(action, n),
  heartbeat: (life, _, action) => life.heartbeat(action),
  result: (life, { n }, action) => life.result(action, done(action.kind === 'hook' ? {} : n)),
  failed: (life, { n }, action) => n < 8 && life.result(action, { kind: 'failed', code: 'broken', message: 'Broken.' }),
  ask: (life, _, action) => life.result(action, { kind: 'ask', interaction: { kind: 'question', prompt: 'Which?' } }),
  resolve: (life, { n }, action) => life.respond(action.actionId, { resolution: pick(['retry', 'fail', 'result'], n) }),
};

/** What a person answers. */
const TO_PERSON: Readonly<Record<string, (life: McpScenario, happening: Happening, interactionId: string) => unknown>> =
  {
    approve: (life, _, id) => life.approve(id, true),
    deny: (life, _, id) => life.approve(id, false, 'no'),
    respond: (life, { n }, id) => life.respond(id, n < 10 ? n : { action: pick(['accept', 'decline', 'cancel'], n) }),
    // A sign-in answers nothing but what asked for one.
    signIn: (life) => life.signIn(...signInsOf(life.turn).map((one) => one.interactionId)),
    raise: (life, { n }, id) => life.respond(id, { raise: n % 2 === 0 ? { limitUsd: 100 + n } : false }),
  };

function act(life: McpScenario, step: Parameters<typeof decideTurn<void>>[2]): void {
  life.take(decideTurn(life.session, START_MS + life.ms, step));
}

function happenToMcp(life: McpScenario, happening: Happening): void {
  const { what, n } = happening;
  const listing = Object.entries(life.turn.threads).filter(([, { mcp }]) => mcp.listing);
  const [threadId] = pick(listing, n) ?? [];
  const call = pick(life.mcpCalls, n);
  if (threadId !== undefined) TO_LISTING[what]?.(life, happening, threadId);
  if (call !== undefined) TO_MCP[what]?.(life, happening, call.effectId);
}

/** Lets one thing happen, where there is something for it to happen to. */
export function happen(life: McpScenario, happening: Happening): void {
  const { what, n, ms } = happening;
  life.ms += ms;
  life.workerId = what === 'roomless' ? null : 'wk_a';
  TO_SESSION[what]?.(life, happening);
  if (life.session.turn === null) return;
  TO_TURN[what]?.(life, happening);
  const { turn } = life.session;
  if (turn === null) return;
  const asked = Object.entries(turn.threads).filter(([, { pending }]) => pending !== null);
  const [threadId] = pick(asked, n) ?? [];
  const action = pick(Object.values(turn.work.actions), n);
  const interaction = pick(Object.values(turn.work.interactions), n);
  happenToMcp(life, happening);
  if (threadId !== undefined) TO_MODEL[what]?.(life, happening, threadId);
  if (action !== undefined) TO_ACTION[what]?.(life, happening, action);
  if (interaction !== undefined) TO_PERSON[what]?.(life, happening, interaction.interactionId);
}

type Life = typeof manifests extends fc.Arbitrary<infer T> ? T : never;
const plain: Life = { hooks: [], mcpServers: [], limits: { maxSteps: 6, maxTurnSeconds: 120 } };
const step = (what: string, more: Partial<Happening> = {}): Happening => ({ what, n: 1, calls: [], ms: 0, ...more });

/** Lives in which the rarer things happen for certain: chance alone leaves one of them out now and then. */
export const lives: [manifest: Life, happenings: readonly Happening[]][] = [
  // An executor falls silent; a person says what became of its tool.
  [
    plain,
    [
      step('message'),
      step('answer', { calls: [{ name: 'find' }] }),
      step('claim'),
      step('expire'),
      step('resolve', { n: 2 }),
    ],
  ],
  // A turn fails while a tool may have run, another waits for a person, and an agent works; it is taken up again, twice.
  [
    plain,
    [
      step('message'),
      step('answer', { calls: [{ name: 'find' }, { name: 'careful' }, { name: 'helper', input: { task: 'look' } }] }),
      step('claim'),
      step('fail', { n: 0 }),
      step('again'),
      step('deny'),
      step('fails', { n: 0 }),
      step('again'),
      step('done', { n: 0 }),
    ],
  ],
  // A worker is lost in the middle of a call that may not be repeated, and a person lets it be made again.
  [
    { ...plain, mcpServers: [DOCS] },
    [
      step('message'),
      step('list'),
      step('answer', { calls: [{ name: 'docs_write' }, { name: 'docs_read' }] }),
      step('takeOver', { n: 2 }),
      step('mcpResolve', { n: 0 }),
      step('mcpAsk', { n: 0 }),
      step('respond', { n: 12 }),
      step('mcpDone', { n: 0 }),
      step('mcpDone', { n: 0 }),
    ],
  ],
  // A server wants a sign-in before it lists its tools, and again for two calls.
  [
    { ...plain, mcpServers: [DOCS] },
    [
      step('message'),
      step('listAuth'),
      step('signIn'),
      step('list'),
      step('answer', { calls: [{ name: 'docs_write' }, { name: 'docs_read' }] }),
      step('mcpAuth', { n: 0 }),
      step('mcpAuth', { n: 0 }),
      step('signIn'),
      step('mcpDone', { n: 0 }),
      step('mcpDone', { n: 0 }),
    ],
  ],
  // An approval, an agent used as a tool, and a conversation that has become too long.
  [
    plain,
    [
      step('message'),
      step('answer', { calls: [{ name: 'careful' }] }),
      step('deny'),
      step('answer', { calls: [{ name: 'helper', input: { task: 'look' } }] }),
      step('done', { n: 0 }),
      step('done', { n: 0 }),
      step('message'),
      step('overflow', { n: 0 }),
      step('done', { n: 0 }),
    ],
  ],
];
