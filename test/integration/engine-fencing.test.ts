import { afterEach, expect, test } from 'vitest';
import { decideMessage } from '#src/domain/session/decide.ts';
import type { McpDriver, McpListing } from '#src/drivers/mcp/port.ts';
import { OVER, whileWanted } from '#src/engine/effect.ts';
import { newId } from '#src/lib/ids.ts';
import type { AggregateRef } from '#src/streams/subjects.ts';
import { newRef } from '../support/commits.ts';
import { answered, Gate, TestModel, TestNodes, untilAborted } from '../support/engine.ts';
import type { TestNode } from '../support/engine.ts';
import { capturedLog } from '../support/logger.ts';
import { useServers } from '../support/servers.ts';
import { until } from '../support/wait-until.ts';

/** What a worker has begun under a claim ends with it: the next claim's worker does the same by itself. */
const servers = useServers();
const nodes = new TestNodes();

afterEach(async () => {
  await nodes.end();
});

/** Servers that are silent until the gate is open. */
class Silent implements McpDriver {
  readonly signals: AbortSignal[] = [];
  readonly gate = new Gate();
  readonly #answer: McpListing;

  constructor(answer: McpListing) {
    this.#answer = answer;
  }

  async list(_server: unknown, { signal }: { readonly signal: AbortSignal }): Promise<McpListing> {
    this.signals.push(signal);
    await this.gate.opened;
    return this.#answer;
  }

  async call(): Promise<never> {
    return await Promise.reject(new Error('no tool of these is called'));
  }

  async stop(): Promise<void> {
    await Promise.resolve();
  }
}

async function sent(node: TestNode, ref: AggregateRef, whenBusy: 'queue' | 'interrupt'): Promise<void> {
  const message = { requestId: whenBusy, subject: null, content: whenBusy, whenBusy };
  await node.command(ref, (state, context) =>
    decideMessage(state, message, { ...context, newTurnId: newId('tu'), tenantModel: null }),
  );
}

test('what a server says to a turn that is over is nothing of the next one, which another node runs', async () => {
  const away = new Silent({ kind: 'unavailable', reason: 'it is away', retryAfterMs: null });
  const there = new Silent({ kind: 'tools', revision: '2026-07-28', tools: [], refused: [], refusedCount: 0 });
  const [first, second] = [nodes.add(servers.log, { mcp: away }), nodes.add(servers.log, { mcp: there })];
  await first.start();
  await second.start();
  const ref = newRef();
  await first.openSession(ref, {}, { mcpServers: [{ name: 'docs', url: 'https://mcp.example/mcp' }] });
  await first.message(ref);
  await until('the server is asked', () => away.signals.length === 1);
  await sent(first, ref, 'queue');
  await sent(second, ref, 'interrupt');
  await until('it is asked for the next turn', () => there.signals.length === 1);
  await until('the first listing is given up', () => away.signals[0]?.aborted === true);
  away.gate.open();
  await until('its worker is done', () => first.worker.active === 0);
  expect(await first.types(ref)).not.toContain('turn.failed');
  there.gate.open();
  const ends = async () => (await first.types(ref)).filter((type) => /^turn\.(completed|failed|cancelled)$/.test(type));
  await until('the one that waited has ended too', async () => (await ends()).length === 3);
  expect(await ends()).toEqual(['turn.cancelled', 'turn.completed', 'turn.completed']);
});

test('an effect is given up as soon as another worker has the turn, though the turn still waits for it', async () => {
  const model = new TestModel(async (_request, signal) => await untilAborted(signal));
  const node = nodes.add(servers.log, { model });
  await node.start();
  const ref = newRef();
  await node.openSession(ref);
  await node.message(ref);
  await until('the call is under way', () => model.calls.length === 1);
  const { state } = await node.sessions.refresh(ref);
  if (state.status !== 'open' || state.turn === null) throw new Error('there is no turn');
  const { loop, sessions, clock, workerId } = node;
  const { logger } = capturedLog();
  const deps = { loop, sessions, clock, workerId, logger, stopping: new AbortController().signal };
  const signals: AbortSignal[] = [];
  const gate = new Gate();
  const effect = whileWanted(deps, { ref, turn: state.turn, isWanted: () => true }, async ({ unwanted }) => {
    signals.push(unwanted);
    await gate.opened;
  });
  const successor = nodes.add(servers.log, { model: new TestModel(() => answered('done')) });
  await successor.start();
  successor.dispatcher.start();
  await node.fallSilent();
  await until('it is given up', () => signals[0]?.aborted === true);
  expect(signals[0]?.reason).toBe(OVER);
  gate.open();
  await effect;
  expect((await successor.turnEnds(ref)).type).toBe('turn.completed');
});
