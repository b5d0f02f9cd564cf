/** Tests of an agent that pays money back, on a Host in this process. See the README beside it. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createMemoryHost } from 'agent-runtime-host';
import type { MemoryHost } from 'agent-runtime-host';

let host: MemoryHost;
before(async () => {
  // What the model says in each turn: it looks nothing up, and pays back.
  const refund = { name: 'refund', input: { order: '1042', euros: 30 } };
  host = await createMemoryHost({ model: [{ toolCalls: [refund] }, 'Your 30 euros are on their way.'] });
});
after(async () => await host.close());

/** A tenant of its own for each test, with the agent and its tool. */
async function shop(approval: 'always' | 'never') {
  const tenant = await host.tenant();
  await tenant.client.agents.save('support', {
    instructions: 'You help the customers of a shop.',
    model: { provider: 'fixture', model: 'any' },
    tools: [{ name: 'refund', inputSchema: { type: 'object' }, approval }],
  });
  const refunds: string[] = [];
  await tenant.tools('support', {
    refund: ({ order, euros }) => `${euros} euros, refund no. ${refunds.push(order)} of order ${order}`,
  });
  return { session: await tenant.client.sessions.open({ agentId: 'support' }), refunds };
}

void test('pays back once, although the worker dies when the money has been paid', async () => {
  const { session, refunds } = await shop('never');
  const died = host.fail('tool.finished');
  assert.equal(await session.ask('My cup is broken.'), 'Your 30 euros are on their way.');
  await died;
  assert.deepEqual(refunds, ['1042']);
});

void test('pays nothing back that a person does not allow, not even a day later', async () => {
  const { session, refunds } = await shop('always');
  await session.send('My cup is broken.');
  const { payload } = await host.until(session.id, 'turn.paused');
  assert.deepEqual(refunds, []);
  host.clock.advance(24 * 3_600_000);
  assert.deepEqual(refunds, []);
  for (const { interactionId } of payload.interactions) await session.approve(interactionId, false);
  await host.until(session.id, 'turn.completed');
  assert.deepEqual(refunds, []);
});
