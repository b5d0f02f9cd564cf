import { expect, test } from 'vitest';
import { START_MS } from '../../../test/support/given.ts';
import { OTHER_WORKER } from '../../../test/support/sessions.ts';
import { done, Scenario } from '../../../test/support/turn-scenario.ts';
import { decideTurn } from '../session/decide.ts';
import { hasJobs, isReady } from './jobs.ts';
import { settleExport } from './process.ts';
import type { OutputsEnd } from './steps/outputs.ts';

const hook = { at: 'after', scope: 'turn' } as const;

/** A session with a sandbox, whose turn has run. */
function sandboxed(manifest: ConstructorParameters<typeof Scenario>[0] = {}): Scenario {
  const scenario = new Scenario(manifest, { helper: { instructions: 'Help.' } });
  scenario.session = { ...scenario.session, sandbox: { sandboxId: 'sb_1', own: true } };
  scenario.message();
  return scenario;
}

function exported(scenario: Scenario, end: Partial<OutputsEnd> = {}): string[] {
  const turnId = scenario.session.turn?.turnId ?? 'tu_none';
  return scenario.take(
    decideTurn(scenario.session, START_MS + scenario.ms, (draft) => {
      settleExport(draft, { turnId, version: 1, refused: null, ...end }, scenario.context());
    }),
  );
}

test('a turn with a sandbox completes once its outputs are exported', () => {
  const scenario = sandboxed();
  expect(scenario.answer('Done.')).toEqual(['model.completed', 'message.assistant', 'outputs.requested']);
  expect(hasJobs(scenario.turn)).toBe(true);
  expect(isReady(scenario.turn, START_MS)).toBe(false);
  expect(exported(scenario)).toEqual(['outputs.exported', 'turn.completed']);
  expect(scenario.last('turn.completed').output).toBe('Done.');
});

test('a worker that takes over finds that it has to be done, and a late end changes nothing', () => {
  const scenario = sandboxed();
  scenario.answer('Done.');
  const { turnId } = scenario.turn;
  expect(scenario.takeOver(OTHER_WORKER)).toEqual(['segment.claimed']);
  expect(scenario.turn.threads['root']?.outputs).toBe('requested');
  expect(exported(scenario)).toEqual(['outputs.exported', 'turn.completed']);
  expect(exported(scenario, { turnId })).toEqual([]);
});

test('what was refused is in the history, and the turn completes', () => {
  const scenario = sandboxed();
  scenario.answer('Done.');
  const refused = { sandboxId: 'sb_1', state: 'running', reason: 'too much' } as const;
  expect(exported(scenario, { version: 0, refused })).toEqual(['sandbox.state', 'outputs.exported', 'turn.completed']);
  expect(scenario.last('sandbox.state')).toMatchObject(refused);
});

test('the last hook comes first, and its output counts', () => {
  const scenario = sandboxed({ hooks: [hook] });
  expect(scenario.answer('Done.')).toContain('action.pending');
  expect(scenario.turn.threads['root']?.outputs).toBe('open');
  const [action] = scenario.actions;
  if (action === undefined) throw new Error('no hook was offered');
  scenario.result(action, done({ output: 'Better.' }));
  expect(scenario.turn.threads['root']?.outputs).toBe('requested');
  exported(scenario);
  expect(scenario.last('turn.completed').output).toBe('Better.');
});

test('a cancelled or failed turn exports nothing, and neither does an agent used as a tool', () => {
  const cancelled = sandboxed();
  expect(cancelled.cancel()).not.toContain('outputs.requested');
  const scenario = sandboxed({ agents: [{ agentId: 'helper', description: 'Helps.' }] });
  scenario.answer('', [{ name: 'helper', input: { task: 'look' } }]);
  const helper = Object.keys(scenario.turn.threads).find((id) => id !== 'root');
  expect(scenario.answer('Found.', [], helper)).not.toContain('outputs.requested');
});
