/** A support agent that refunds when a person has approved it. See the README beside it. */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { createInterface } from 'node:readline';
import { createClient } from 'agent-runtime-host/client';
import type { EventRecord } from 'agent-runtime-host/client';

// Where the Host is, and a key for it: the file that `agent-host init` wrote.
const file = process.env['AGENT_HOST_CONTEXT'] ?? `${homedir()}/.config/agent-host/context.json`;
const { url, tenant, key } = JSON.parse(await readFile(file, 'utf8'));
const client = createClient({ url, tenant, key });

await client.agents.save('support', {
  instructions: 'You help the customers of a shop. Look at the order, then refund what was damaged.',
  // Plays the script that it is sent. With a provider's key, name its model here and write to it in plain words.
  model: { provider: 'fixture', model: 'any' },
  tools: [
    {
      name: 'refund',
      inputSchema: { type: 'object', properties: { order: { type: 'string' }, euros: { type: 'number' } } },
      approval: 'always',
    },
  ],
});
const MESSAGE = JSON.stringify({
  fixture: [{ text: 'I am sorry. I refund it.', toolCalls: [{ name: 'refund', input: { order: '1042', euros: 30 } }] }],
});

// The tools run here, under a token of their own; as well in another process, or on another machine.
const token = `support-${randomUUID()}`;
await client.request('PUT /v1/executors', { body: { executors: [{ agentId: 'support', token }] } });
const executor = createClient({ url, tenant, key: token }).executor('support', {
  refund: ({ order, euros }) => `${euros} euros are refunded for order ${order}`,
});

/** Events as a person reads them. */
function show({ type, payload }: EventRecord): void {
  if (type === 'message.assistant') console.log(`agent:  ${payload.text}`);
  if (type === 'action.completed') console.log(`tool:   ${payload.toolName} ${payload.outcome.kind}`);
}

/** The end of the input is a no. */
async function isYes(question: string): Promise<boolean> {
  process.stdout.write(`${question} [y/n] `);
  if (process.argv.includes('--yes')) return true;
  for await (const line of createInterface({ input: process.stdin })) return /^y/i.test(line);
  return false;
}

try {
  const session = await client.sessions.open({ agentId: 'support' });
  const answer = await session.ask(MESSAGE, {
    onEvent: show,
    answer: ({ toolName, input }) => isYes(`person: allow ${toolName} ${JSON.stringify(input)}?`),
  });
  console.log(`answer: ${String(answer)}`);
} finally {
  await executor.stop();
}
