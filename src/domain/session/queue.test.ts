import { expect, test } from 'vitest';
import { Scenario } from '../../../test/support/turn-scenario.ts';
import { MANIFEST } from '../../../test/support/sessions.ts';
import { QUEUE_CHARS_MAX, QUEUE_MAX } from './decide.ts';

const refused = ['rejected: limit_exceeded'];
const queued = ['command.message', 'turn.queued'];
/** A quarter of what all that wait may have. */
const long = 'x'.repeat(QUEUE_CHARS_MAX / 4);

/** A session whose turn is active. */
function busy(): Scenario {
  const scenario = new Scenario();
  scenario.message();
  return scenario;
}

test('as many messages wait as may, and one that waits no more makes room', () => {
  const scenario = busy();
  for (let n = 0; n < QUEUE_MAX; n++) expect(scenario.message({ whenBusy: 'queue' })).toEqual(queued);
  expect(scenario.message({ whenBusy: 'queue' })).toEqual(refused);
  expect(scenario.answer('Done.')).toContain('turn.started');
  expect(scenario.message({ whenBusy: 'queue' })).toEqual(queued);
});

test.each([
  ['texts', { content: long }],
  ['manifests', { manifest: { ...MANIFEST, instructions: long } }],
])('long %s wait until they are too much together', (_, command) => {
  const scenario = busy();
  for (let n = 0; n < 3; n++) expect(scenario.message({ ...command, whenBusy: 'queue' })).toEqual(queued);
  expect(scenario.message({ ...command, whenBusy: 'queue' })).toEqual(refused);
  expect(scenario.message({ whenBusy: 'queue' })).toEqual(queued);
  expect(scenario.answer('Done.')).toContain('turn.started');
  expect(scenario.message({ ...command, whenBusy: 'queue' })).toEqual(queued);
});

test('one that is longer than all of them may be waits by itself', () => {
  const scenario = busy();
  const content = 'x'.repeat(QUEUE_CHARS_MAX + 1);
  expect(scenario.message({ content, whenBusy: 'queue' })).toEqual(queued);
  expect(scenario.message({ whenBusy: 'queue' })).toEqual(refused);
});

test('turns of which none can run end in one commit that the log takes, whatever waited', () => {
  const scenario = busy();
  // Without a model of its own: the tenant has none either.
  const manifest = { instructions: long };
  while (scenario.message({ manifest, whenBusy: 'queue' })[0] === 'command.message');
  const before = scenario.events.length;
  const types = scenario.cancel();
  expect(types.filter((type) => type === 'turn.failed')).toHaveLength(3);
  expect(JSON.stringify(scenario.events.slice(before)).length).toBeLessThan(QUEUE_CHARS_MAX + 10_000);
  expect(scenario.session).toMatchObject({ turn: null, queue: [] });
});
