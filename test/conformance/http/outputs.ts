import { describe, expect, test } from 'vitest';
import { newSession, newTenant } from './target.ts';
import type { HttpTarget } from './target.ts';

/** What a turn gives, and what it takes to get there. */
export function outputSuite(target: () => HttpTarget): void {
  describe('an output schema', () => {
    const outputSchema = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] };

    test('gives the value; an answer that does not fit is asked for once more', async () => {
      const tenant = await newTenant(target());
      await tenant.saveAgent('structured', { outputSchema });
      const id = await newSession(tenant, { agentId: 'structured' });
      const { turnId } = await tenant.play(id, [{ text: 'one' }, { text: '{"n":1}' }]);
      expect((await tenant.turnEnd(id, turnId)).payload).toMatchObject({ output: { n: 1 } });
      // The Host's own words to the model are nobody's message.
      expect((await tenant.items(id)).map(({ type }) => type)).toEqual([
        'command.message',
        'message.assistant',
        'message.assistant',
        'turn.completed',
      ]);
      const { turnId: second } = await tenant.play(id, [{ text: 'one' }, { text: 'two' }]);
      expect(await tenant.turnEnd(id, second)).toMatchObject({
        type: 'turn.failed',
        payload: { error: { code: 'output_invalid' } },
      });
    });
  });

  describe('a conversation that does not fit the model', () => {
    const TOO_LONG = { error: { code: 'context_overflow', message: 'Too long.' } };

    test('is compacted, the turn goes on, and the history keeps everything', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const first = await tenant.message(id, 'remember the number seven');
      await tenant.turnEnd(id, first.turnId);
      const before = await tenant.items(id);
      const { turnId } = await tenant.play(id, [TOO_LONG, { text: 'still here' }]);
      expect((await tenant.turnEnd(id, turnId)).payload).toMatchObject({ output: 'still here' });
      const items = await tenant.items(id);
      expect(items.slice(0, before.length)).toEqual(before);
      expect(items.slice(before.length).map(({ type }) => type)).toEqual([
        'command.message',
        'message.assistant',
        'turn.completed',
      ]);
      // The one that did not fit and the one for the summary are in the ledger.
      const { calls } = await tenant.calls(id, `?turnId=${turnId ?? ''}`);
      expect(calls.map(({ outcome }) => outcome)).toEqual(['failed', 'completed', 'completed']);
    });

    test('of one message only fails the turn', async () => {
      const tenant = await newTenant(target());
      const id = await newSession(tenant);
      const { turnId } = await tenant.play(id, [TOO_LONG, TOO_LONG]);
      expect((await tenant.turnEnd(id, turnId)).payload).toMatchObject({ error: { code: 'context_overflow' } });
    });
  });

  describe('a manifest', () => {
    const put = async (manifest: Record<string, unknown>) => {
      const tenant = await newTenant(target());
      const body = { manifest: { instructions: '', ...manifest } };
      return await tenant.request({ method: 'PUT', path: '/v1/agents/a', body });
    };
    const tool = { name: 'find', inputSchema: {} };

    test.each([
      ['a schema that does not compile', { tools: [{ ...tool, inputSchema: { type: 'nonsense' } }] }],
      ['a schema that refers to elsewhere', { outputSchema: { $ref: 'https://example.com/schema' } }],
      ['a pattern that takes exponential time to look back', { outputSchema: { pattern: '(?<=a)b' } }],
      ['one name twice', { tools: [tool, tool] }],
      ['a tool named as an agent', { tools: [tool], agents: [{ agentId: 'find', description: '' }] }],
      ['a name of other characters', { tools: [{ ...tool, name: 'find it' }] }],
      [
        'a hook twice',
        {
          hooks: [
            { at: 'before', scope: 'turn' },
            { at: 'before', scope: 'turn' },
          ],
        },
      ],
      ['no cost at all', { limits: { maxCostUsd: 0 } }],
    ])('with %s is refused', async (_, manifest) => {
      const answer = await put(manifest);
      expect([answer.status, answer.text]).toEqual([400, expect.stringContaining('invalid_request')]);
    });

    test('with an agent that is not there opens no session, and names it', async () => {
      const tenant = await newTenant(target());
      await tenant.saveAgent('lead', { agents: [{ agentId: 'helper', description: 'Helps.' }] });
      const raw = { method: 'PUT', path: '/v1/sessions/s', body: { agentId: 'lead' } };
      const answer = await tenant.request(raw);
      expect([answer.status, answer.text]).toEqual([404, expect.stringContaining('helper')]);
      await tenant.saveAgent('helper');
      expect((await tenant.request(raw)).status).toBe(200);
    });
  });
}
