import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { TurnSpan } from '#src/domain/session/spans.ts';
import { OtlpSpans } from '#src/drivers/spans/otlp.ts';
import { capturedLog } from '../support/logger.ts';
import { OtlpReceiver } from '../support/otlp-receiver.ts';
import { until } from '../support/wait-until.ts';

const OWNER = { tenantId: 'te_1', sessionId: 'a session' };
const TURN: TurnSpan = {
  turnId: 'tu_1',
  key: 'turn',
  parent: null,
  name: 'invoke_agent agent',
  kind: 'internal',
  startedAt: '2026-01-01T00:00:00.123Z',
  endedAt: '2026-01-02T00:00:00.456Z',
  error: null,
  attributes: { 'gen_ai.operation.name': 'invoke_agent', 'agent_host.steps': 2, half: 0.5, yes: true },
  link: { traceId: 'ab'.repeat(16), spanId: 'cd'.repeat(8) },
};
const CALL: TurnSpan = {
  ...TURN,
  ...{ key: 'call mc_1', parent: 'turn', name: 'chat m', kind: 'client', error: 'overloaded', link: null },
};

let receiver: OtlpReceiver;

beforeEach(async () => {
  receiver = await OtlpReceiver.start();
  vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', receiver.url);
  vi.stubEnv('OTEL_EXPORTER_OTLP_HEADERS', 'x-api-key=planted');
  // Past it a batch that was not taken is given up: a busy machine has time to deliver one that is.
  vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '30000');
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await receiver[Symbol.asyncDispose]();
});

const derived = (names: readonly string[], digits: number): string =>
  createHash('sha256').update(JSON.stringify(names)).digest('hex').slice(0, digits);

describe('spans by OTLP', () => {
  test('arrive whole, with ids that are derived as the documents say', async () => {
    const exporter = new OtlpSpans({ resource: { 'service.name': 'host' }, ...capturedLog(), closeMs: 60_000 });
    exporter.export(OWNER, [CALL, TURN]);
    await exporter.close();
    const [call, turn] = receiver.spans;
    const traceId = derived(['trace', 'te_1', 'a session', 'tu_1'], 32);
    const turnSpanId = derived(['span', 'te_1', 'a session', 'tu_1', 'turn'], 16);
    expect(turn).toEqual({
      ...{ traceId, spanId: turnSpanId, parentSpanId: '', name: 'invoke_agent agent', kind: 1, status: 0 },
      start: 1_767_225_600_123_000_000n,
      end: 1_767_312_000_456_000_000n,
      attributes: {
        ...TURN.attributes,
        'gen_ai.conversation.id': 'a session',
        'agent_host.tenant.id': 'te_1',
      },
      links: [TURN.link],
      resource: { 'service.name': 'host' },
    });
    const spanId = derived(['span', 'te_1', 'a session', 'tu_1', 'call mc_1'], 16);
    expect(call).toMatchObject({ traceId, spanId, parentSpanId: turnSpanId, name: 'chat m', kind: 3, status: 2 });
    expect(call?.attributes['error.type']).toBe('overloaded');
    expect(receiver.headers[0]?.['x-api-key']).toBe('planted');
    expect(exporter.counts).toEqual({ exported: 2, failed: 0, overflowed: 0 });
  });

  test('that the receiver does not take are counted, said once, and never say a header', async () => {
    // No answer that the exporter would try again after.
    receiver.status = 400;
    const { logger, lines } = capturedLog();
    const exporter = new OtlpSpans({ resource: {}, logger });
    exporter.export(OWNER, [CALL]);
    await until('they are given up', () => exporter.counts.failed === 1);
    exporter.export(OWNER, [CALL, TURN]);
    await until('they are, too', () => exporter.counts.failed === 3);
    receiver.status = 200;
    exporter.export(OWNER, [TURN]);
    await until('it is taken', () => exporter.counts.exported === 1);
    await exporter.close();
    expect(receiver.spans.length).toBe(1);
    expect(lines.map(({ msg }) => msg)).toEqual([
      'the export of traces fails; it is tried again until it works',
      'the export of traces works again',
    ]);
    expect(JSON.stringify(lines)).not.toContain('planted');
  });

  test('that do not fit are counted, and a receiver that never answers holds nobody up', async () => {
    receiver.status = null;
    vi.stubEnv('OTEL_EXPORTER_OTLP_TIMEOUT', '60000');
    const exporter = new OtlpSpans({ resource: {}, ...capturedLog(), waitingMax: 3, closeMs: 200 });
    exporter.export(OWNER, [CALL, CALL, CALL, TURN, TURN]);
    expect(exporter.counts.overflowed).toBe(2);
    await until('the first are on their way', () => receiver.bodies.length === 1);
    exporter.export(OWNER, [CALL, TURN]);
    const begun = performance.now();
    await exporter.close();
    // Not for as long as an answer may take.
    expect(performance.now() - begun).toBeLessThan(20_000);
    expect(exporter.counts.exported).toBe(0);
    expect(exporter.counts.overflowed + exporter.counts.failed).toBe(7);
  });
});
