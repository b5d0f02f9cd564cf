import { expect, test } from 'vitest';
import { decideArchiveAgent, decideSaveAgent } from './decide.ts';
import { agentEventSchemas } from './events.ts';
import type { AgentEvent } from './events.ts';
import type { Manifest } from './manifest.ts';
import { evolveAgent, initialAgent } from './state.ts';
import type { AgentState } from './state.ts';

const A: Manifest = { instructions: 'A' };
const B: Manifest = { instructions: 'B', model: { provider: 'fixture', model: 'echo' } };

type Result = { state: AgentState; reply: unknown; events: readonly AgentEvent[] };

function take(
  state: AgentState,
  decision: ReturnType<typeof decideSaveAgent> | ReturnType<typeof decideArchiveAgent>,
): Result {
  if (decision.kind === 'rejected') throw new Error(decision.code);
  const events = decision.kind === 'accepted' ? decision.events : [];
  for (const { type, data } of events) expect(agentEventSchemas[type].parse(data)).toEqual(data);
  const after = events.reduce(
    (folded, event, index) => evolveAgent(folded, event, { at: '2026-01-01T00:00:00.000Z', position: 1, index }),
    state,
  );
  return { state: after, reply: decision.reply, events };
}

const save = (state: AgentState, manifest: Manifest, implementationVersion: string | null = null): Result =>
  take(
    state,
    decideSaveAgent(state, {
      agentId: 'a',
      manifest,
      manifestHash: `hash of ${manifest.instructions}`,
      implementationVersion,
    }),
  );
const archive = (state: AgentState): Result => take(state, decideArchiveAgent(state));

test('A, B, A are three versions', () => {
  const first = save(initialAgent, A);
  const second = save(first.state, B);
  const third = save(second.state, A);
  expect([first, second, third].map(({ reply }) => reply)).toEqual([
    { agentId: 'a', manifestHash: 'hash of A', version: 1, implementationVersion: null },
    { agentId: 'a', manifestHash: 'hash of B', version: 2, implementationVersion: null },
    { agentId: 'a', manifestHash: 'hash of A', version: 3, implementationVersion: null },
  ]);
  expect(third.state).toEqual({
    status: 'saved',
    agentId: 'a',
    version: 3,
    manifestHash: 'hash of A',
    implementationVersion: null,
    manifest: A,
  });
});

test('the same again gives neither a new version nor an event', () => {
  const first = save(initialAgent, A, 'git-1');
  expect(save(first.state, A, 'git-1')).toEqual({ ...first, events: [] });
});

test('another implementation is a new version, none is another than one', () => {
  const first = save(initialAgent, A, 'git-1');
  const second = save(first.state, A, 'git-2');
  const third = save(second.state, A);
  expect([second.reply, third.reply]).toMatchObject([{ version: 2 }, { version: 3, implementationVersion: null }]);
});

test('an archived agent comes back as it was without a new version, changed with one', () => {
  const archived = archive(save(initialAgent, A).state).state;
  expect(archived).toMatchObject({ status: 'archived', version: 1, manifest: A });
  const back = save(archived, A);
  expect([back.events.length, back.reply]).toMatchObject([1, { version: 1 }]);
  expect(back.state.status).toBe('saved');
  expect(save(archived, B).reply).toMatchObject({ version: 2 });
});

test('archiving: nothing is there, it is there, it was done before', () => {
  expect(decideArchiveAgent(initialAgent)).toMatchObject({ kind: 'rejected', code: 'not_found' });
  const once = archive(save(initialAgent, A).state);
  expect(once.events).toEqual([{ type: 'agent.archived', data: { agentId: 'a' } }]);
  expect(archive(once.state)).toMatchObject({ events: [], reply: { archived: true } });
});

test('an archive of nothing changes nothing', () => {
  const meta = { at: '2026-01-01T00:00:00.000Z', position: 1, index: 0 };
  expect(evolveAgent(initialAgent, { type: 'agent.archived', data: { agentId: 'a' } }, meta)).toEqual(initialAgent);
});
