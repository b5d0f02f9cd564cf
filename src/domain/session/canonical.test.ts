import { expect, test } from 'vitest';
import { MANIFEST, TURN, usage } from '../../../test/support/sessions.ts';
import { isCanonical, toCanonical } from './canonical.ts';
import { sessionEventSchemas } from './events.ts';
import type { SessionEvent } from './events.ts';

type Types = SessionEvent['type'];
type DataOf<T extends Types> = Extract<SessionEvent, { type: T }>['data'];

const ERROR = { code: 'c', message: 'm' };
const CALL = { turnId: TURN, callId: 'mc_1', step: 0 };

/** One event of each type with every optional member, so that what is shown of them can be read off. */
const FULL: { readonly [T in Types]: DataOf<T> } = {
  'session.created': {
    agentId: 'a',
    agentVersion: 1,
    manifestHash: 'h',
    manifest: MANIFEST,
    subject: 'ada',
    info: {},
    labels: {},
    bodyHash: 'b',
  },
  'session.updated': { labels: {} },
  'command.message': {
    turnId: TURN,
    requestId: 'r',
    subject: 'ada',
    content: 'c',
    parts: [{ type: 'text', text: 't' }],
    whenBusy: 'reject',
    manifest: MANIFEST,
  },
  'command.cancel': { turnId: TURN, requestId: 'r', subject: 'ada', namedTurnId: 'tu_named', reason: 'because' },
  'turn.started': { turnId: TURN, deadlineAt: 'd', maxSteps: 1, instructions: 'i', model: null, manifest: null },
  'segment.claimed': { turnId: TURN, epoch: 1, workerId: 'wk' },
  'segment.released': { turnId: TURN, epoch: 1 },
  'model.requested': { ...CALL, effectId: 'ef_1', attempt: 0, provider: 'fixture', model: 'm' },
  'model.completed': { ...CALL, usage: usage() },
  'model.failed': { ...CALL, error: ERROR, usage: usage(), retryAt: null },
  'model.reported': { turnId: TURN, callId: 'mc_1', usage: usage() },
  'effect.uncertain': { turnId: TURN, effectId: 'ef_1', kind: 'model', reason: 'lost', callId: 'mc_1' },
  'message.assistant': { turnId: TURN, step: 3, text: 't', toolCalls: [{ callId: 'c', name: 'n', input: 1 }] },
  'tool.completed': { turnId: TURN, callId: 'c', name: 'n', outcome: { kind: 'completed', output: 1 } },
  'turn.completed': { turnId: TURN, output: 'o', usage: usage() },
  'turn.failed': { turnId: TURN, error: ERROR },
  'turn.cancelled': { turnId: TURN, reason: 'because' },
};

/** What the wire shows, member by member: a new member is invisible until it is named here and there. */
const SHOWN: Partial<Record<Types, readonly string[]>> = {
  'command.message': ['content', 'manifest', 'parts', 'requestId', 'subject', 'whenBusy'],
  'command.cancel': ['reason', 'requestId', 'subject', 'turnId'],
  'message.assistant': ['text', 'toolCalls'],
  'effect.uncertain': ['effectId', 'kind', 'reason'],
  'turn.completed': ['output', 'usage'],
  'turn.failed': ['error'],
  'turn.cancelled': ['reason'],
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
  expect([canonical?.type, canonical?.turnId, members]).toEqual(
    shown === undefined ? [undefined, undefined, undefined] : [type, TURN, shown],
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
