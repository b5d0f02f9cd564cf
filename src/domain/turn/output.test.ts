import { describe, expect, test } from 'vitest';
import { Scenario } from '../../../test/support/turn-scenario.ts';

describe('an output schema', () => {
  const wanted = { outputSchema: { type: 'object', required: ['n'] } };

  test.each([
    ['{"n":1}'],
    [' \n{"n":1}\n '],
    ['```json\n{"n":1}\n```'],
    ['```\n{"n":1}\n```'],
    ['\n``` \n\n{"n":\n1}\n  ```\n\u00a0'],
  ])('gives the value of %j', (text) => {
    const scenario = new Scenario(wanted);
    scenario.message();
    scenario.answer(text);
    expect(scenario.last('turn.completed').output).toEqual({ n: 1 });
  });

  test.each([
    ['no fence that ends', `\`\`\`json${'\n'.repeat(5_000)}`],
    ['no fence that begins', `${'\n'.repeat(5_000)}\`\`\``],
    ['fences around nothing', `\`\`\`${'\n'.repeat(5_000)}\`\`\``],
    ['a fence that ends too early', `\`\`\`${'\n'.repeat(5_000)}\`\`\` x`],
    ['half a fence', '````'],
    ['a text that Postgres cannot hold', '{"n":"\\u0000"}'],
    ['a text that UTF-8 cannot carry', '{"n":"\\ud800"}'],
    ['more levels than a store holds', `{"n":${'['.repeat(100_000)}${']'.repeat(100_000)}}`],
  ])('is not met, nor waited for, by an answer of another kind: %s', (_what, text) => {
    const scenario = new Scenario(wanted);
    scenario.message();
    expect(scenario.answer(text)).toContain('output.rejected');
  });

  test('that is not met is asked for once more, then the turn fails', () => {
    const scenario = new Scenario(wanted);
    scenario.message();
    expect(scenario.answer('no json')).toEqual([
      'model.completed',
      'message.assistant',
      'output.rejected',
      'model.requested',
    ]);
    expect(scenario.session.conversation.messages.at(-1)).toMatchObject({ role: 'user', byHost: true });
    expect(scenario.answer('{}')).toEqual(['model.completed', 'message.assistant', 'turn.failed']);
    expect(scenario.last('turn.failed')).toMatchObject({ error: { code: 'output_invalid' } });
  });
});
