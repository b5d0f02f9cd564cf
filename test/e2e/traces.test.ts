import { afterAll, beforeAll, expect, test } from 'vitest';
import { claimed } from '#src/http/wire/executors.ts';
import { spanIdOf, traceIdOf } from '#src/drivers/spans/span-ids.ts';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { ExecutorClient, registerExecutor } from '../support/executor.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { OtlpReceiver } from '../support/otlp-receiver.ts';
import type { ReceivedSpan } from '../support/otlp-receiver.ts';
import { Scrape } from '../support/scrape.ts';
import { until } from '../support/wait-until.ts';

const SECRET = 'what nobody else may read';
const SENDER = { traceId: '0af7651916cd43dd8448eb211c80319c', spanId: 'b7ad6b7169203331' };
const tool = { inputSchema: {}, description: SECRET };
const MANIFEST = {
  instructions: SECRET,
  tools: [
    { ...tool, name: 'find' },
    { ...tool, name: 'pay', approval: 'always' },
  ],
};
const calling = (name: string) => [{ name, input: { text: SECRET } }];
/** The second call takes long enough for its node to die under it, and as long again on the next one. */
const SCRIPT = [
  { text: SECRET, toolCalls: calling('find') },
  { text: SECRET, toolCalls: calling('pay'), delayMs: 12_000 },
  { text: SECRET },
];

/** Waits for what the session waits for, and gives its id. */
async function waitOf(tenant: TenantClient, session: string, status: string): Promise<string> {
  return await until(`the session is ${status}`, async () => {
    const { waits, ...seen } = await tenant.session(session);
    return seen.status === status && waits[0]?.id;
  });
}

async function run(executor: ExecutorClient, session: string, actionId: string): Promise<void> {
  // A node learns of a new executor within a second.
  const claim = await until('the executor may claim', async () => {
    const answer = await executor.claim(actionId);
    return answer.status === 200 && claimed.parse(answer.json);
  });
  const { claimId, generation } = claim;
  const outcome = { kind: 'completed', output: SECRET } as const;
  const { status, text } = await executor.result(session, { actionId, claimId, generation }, outcome);
  expect(status, text).toBe(202);
}

const namesOf = (spans: readonly ReceivedSpan[]): string[] => spans.map(({ name }) => name).toSorted();

const disposables = new AsyncDisposableStack();
let receiver: OtlpReceiver;
let base: Host;
const tracing = () => ({
  OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
  OTEL_RESOURCE_ATTRIBUTES: 'deployment=a%20test',
});

beforeAll(async () => {
  receiver = disposables.use(await OtlpReceiver.start());
  // Each process is an instance of the service; who told what is counted.
  base = disposables.use(await startHost({ env: tracing(), singleProcess: true }));
});
afterAll(async () => await disposables.disposeAsync());

test('a receiver that is away costs spans, which are counted, and nothing else', { timeout: 360_000 }, async () => {
  const gone = await OtlpReceiver.start();
  const { url } = gone;
  await gone[Symbol.asyncDispose]();
  const env = { OTEL_EXPORTER_OTLP_ENDPOINT: url, OTEL_EXPORTER_OTLP_TIMEOUT: '300' };
  await using host = await startHost({ join: base, env });
  const tenant = (await new AdminClient(base).createTenant()).at(host);
  await tenant.saveAgent();
  await tenant.openSession('alone');
  const { turnId } = await tenant.message('alone', 'hello');
  expect((await tenant.turnEnd('alone', turnId)).type).toBe('turn.completed');
  await until('both spans are given up', async () => {
    return (await Scrape.of(host)).value('trace_spans_total', { outcome: 'failed' }) === 2;
  });
  expect((await Scrape.of(host)).value('trace_spans_total', { outcome: 'exported' })).toBe(0);
  await host.stop();
});

test(
  'a turn that pauses, loses its node and ends on another is one trace, each span of it told once',
  { timeout: 480_000 },
  async () => {
    await using doomed = await startHost({ join: base, env: tracing(), singleProcess: true });
    const tenant = await new AdminClient(base).createTenant();
    await tenant.saveAgent('agent', MANIFEST);
    await tenant.openSession('long');
    const executor = new ExecutorClient(tenant, await registerExecutor(tenant));

    const message = { type: 'message', content: JSON.stringify({ fixture: SCRIPT }) };
    const headers = { traceparent: `00-${SENDER.traceId}-${SENDER.spanId}-01` };
    const ids = { requestId: 'r', idempotencyKey: 'k' };
    const path = '/v1/sessions/long/commands';
    const there = tenant.at(doomed);
    const sent = await there.request({ method: 'POST', path, headers, body: { ...ids, ...message } });
    expect(sent.status, sent.text).toBe(202);
    await run(executor.at(doomed), 'long', await waitOf(tenant, 'long', 'waiting'));
    await until('the first parts are told', () => receiver.spans.length === 2);
    await doomed.kill();

    const interactionId = await waitOf(tenant, 'long', 'paused');
    const answer = { type: 'approve', interactionId, approved: true };
    expect((await tenant.command('long', answer)).status).toBe(202);
    await run(executor, 'long', await waitOf(tenant, 'long', 'waiting'));
    const end = await until('the turn has ended', async () =>
      (await tenant.items('long')).find(({ type }) => type === 'turn.completed'),
    );
    // A graceful stop waits for a receiver no longer than some seconds, so it is to find nothing left. It ends the Host: this
    // test is the last one.
    await until('all of it is told', () => receiver.spans.length >= 7);
    await base.stop();

    const { spans } = receiver;
    const turnId = end.turnId ?? '';
    const owner = { tenantId: tenant.tenantId, sessionId: 'long' };
    const turn = spanIdOf(owner, turnId, 'turn');
    expect(namesOf(spans)).toEqual([
      ...['chat any', 'chat any', 'chat any', 'chat any'],
      ...['execute_tool find', 'execute_tool pay', 'invoke_agent agent'],
    ]);
    expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set([traceIdOf(owner, turnId)]));
    expect(new Set(spans.map(({ spanId }) => spanId)).size).toBe(spans.length);
    for (const { name, spanId, parentSpanId, start, end: ended } of spans) {
      expect(parentSpanId, name).toBe(spanId === turn ? '' : turn);
      expect(ended, name).toBeGreaterThanOrEqual(start);
    }
    const root = spans.find(({ spanId }) => spanId === turn);
    expect(root).toMatchObject({ name: 'invoke_agent agent', links: [SENDER], status: 0 });
    expect(root?.attributes).toMatchObject({
      'gen_ai.conversation.id': 'long',
      'agent_host.tenant.id': tenant.tenantId,
      'agent_host.turn.id': turnId,
    });
    expect(root?.resource).toMatchObject({ 'service.name': 'agent-runtime-host', deployment: 'a test' });
    for (const { name, spanId, attributes } of spans) {
      const of = name.startsWith('chat') ? `call ${String(attributes['agent_host.call.id'])}` : null;
      const key = name.startsWith('execute_tool') ? `tool ${String(attributes['gen_ai.tool.call.id'])}` : of;
      expect(spanId, name).toBe(key === null ? turn : spanIdOf(owner, turnId, key));
    }
    // The call that died with its node is told by the one that found it lost.
    const nodes = new Set(spans.map(({ resource }) => resource['service.instance.id']));
    expect(nodes.size).toBe(2);
    const lost = spans.filter(({ attributes }) => attributes['error.type'] === 'lost');
    expect(lost.map(({ name, resource }) => [name, resource['service.instance.id']])).toEqual([
      ['chat any', root?.resource['service.instance.id']],
    ]);
    expect(Buffer.concat(receiver.bodies).includes(SECRET)).toBe(false);
  },
);
