import { afterAll, beforeAll, expect, test } from 'vitest';
import { sessionUsage } from '#src/http/wire/usage.ts';
import { AdminClient } from '../support/client.ts';
import type { EventRecord, TenantClient } from '../support/client.ts';
import { isRunning, startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { spokenIn } from '../support/model-requests.ts';
import { ModelServer } from '../support/model-server.ts';
import type { Reply, WireRequest } from '../support/model-server.ts';
import type { SseReader } from '../support/sse.ts';
import { until } from '../support/wait-until.ts';

/**
 * The only node with workers is killed while answers of models are at each point of their way, and started again. What
 * the provider worked at is in the ledger call by call, and an answer that the log has is not asked for again.
 */
const TURN_MS = 120_000;
const TOKENS = 15;
const HALF = 'half of it has come';
/** Where the answer stands when the node dies: frames of it that were sent. The first opens the stream, the last three end it. */
const HELD = {
  'the request was taken': 0,
  'the first word has come': 2,
  [HALF]: 6,
  'the last word has come': 11,
} as const satisfies Readonly<Record<string, number>>;
const WHOLE = 'the whole answer has come';
const SECOND_STEP = 'the second step was asked';
const RECORDED = 'the answer was recorded just before';

/** Ten words that say which attempt wrote them. */
const wordsOf = (run: string, time: number): string =>
  `${run.replaceAll(' ', '-')} ${Array.from({ length: 9 }, (_, n) => `w${time}.${n}`).join(' ')}`;

/** What the provider was asked for, and so bills: by the run and its step. */
class Billed {
  readonly #times = new Map<string, number>();
  /** Runs whose first answer stops on its way. */
  readonly held = new Map<string, number>();

  readonly script = async ({ body }: WireRequest): Promise<Reply> => {
    const spoken = spokenIn('openai-compatible', body);
    const run = spoken[0]?.texts[0] ?? '';
    const step = spoken.filter(({ role }) => role === 'assistant').length;
    const time = this.of(run, step) + 1;
    this.#times.set(`${run}/${step}`, time);
    const isTwoSteps = run === SECOND_STEP || run === RECORDED;
    if (isTwoSteps && step === 0) return await Promise.resolve({ toolCalls: [{ name: 'absent', input: {} }] });
    const text = wordsOf(run, time);
    const frames = time === 1 ? this.held.get(run) : undefined;
    return frames === undefined ? { text } : { text, stallAfter: { frames, until: new Promise(() => undefined) } };
  };

  of(run: string, step = 0): number {
    return this.#times.get(`${run}/${step}`) ?? 0;
  }
}

const billed = new Billed();
let front: Host;
let engine: Host;
let server: ModelServer;
let tenant: TenantClient;

beforeAll(async () => {
  server = await ModelServer.start('openai-compatible');
  server.play(billed.script);
  front = await startHost({ env: { AGENT_HOST_ROLES: 'commands,reads,projector' } });
  // The second answer that is whole is that of the run which waits for it; the first is the first step of another.
  const armed = { AGENT_HOST_FAULT_POINTS: 'model.answered=kill@2', AGENT_HOST_ROLES: 'engine' };
  engine = await startHost({ join: front, env: armed });
  tenant = await new AdminClient(front).createTenant();
  const model = { provider: 'openai-compatible', model: 'llama-4' };
  await tenant.saveAgent('agent', { model });
  const selection = { ...model, baseUrl: server.baseUrl };
  const answer = await tenant.request({ method: 'PUT', path: '/v1/tenant/model', body: selection });
  expect(answer.status, answer.text).toBe(200);
}, 360_000);

afterAll(async () => {
  await engine[Symbol.asyncDispose]();
  await front[Symbol.asyncDispose]();
  await server[Symbol.asyncDispose]();
});

const idOf = (run: string): string => run.replaceAll(' ', '-');

async function begin(run: string): Promise<string> {
  await tenant.openSession(idOf(run));
  return (await tenant.message(idOf(run), run)).turnId ?? '';
}

const of = (items: readonly EventRecord[], type: string): readonly Record<string, unknown>[] =>
  items.filter((item) => item.type === type).map(({ payload }) => payload as Record<string, unknown>);

interface Preview {
  readonly modelCallId: string;
  readonly offset: number;
  readonly text?: string;
}

function previewsOf({ frames }: SseReader): readonly Preview[] {
  return frames.flatMap(({ event, data }) => (event === 'preview' ? [JSON.parse(data) as Preview] : []));
}

/** The ledger has each call that was billed, and the turn ends with the answer of the last. */
async function check(run: string, turnId: string, expected: readonly string[]): Promise<void> {
  const end = await tenant.turnEnd(idOf(run), turnId, TURN_MS);
  const { calls } = await tenant.calls(idOf(run));
  const said = calls.map(({ outcome, attempt, usage }) => `${outcome} ${attempt} ${usage.totalTokens}`);
  expect(said, run).toEqual(expected);
  expect(new Set(calls.map(({ id }) => id)).size).toBe(calls.length);
  expect(billed.of(run) + billed.of(run, 1), 'no call was billed that the ledger lacks').toBeLessThanOrEqual(
    calls.length,
  );
  const lastStep = billed.of(run, 1) > 0 ? 1 : 0;
  const items = await tenant.items(idOf(run));
  expect(end, run).toMatchObject({
    type: 'turn.completed',
    payload: { output: wordsOf(run, billed.of(run, lastStep)) },
  });
  const completed = calls.filter(({ outcome }) => outcome === 'completed');
  expect(of(items, 'message.assistant').map(({ modelCallId }) => modelCallId)).toEqual(completed.map(({ id }) => id));
  expect(of(items, 'effect.uncertain')).toHaveLength(calls.length - completed.length);
  const answer = await tenant.request({ path: `/v1/sessions/${idOf(run)}/usage` });
  const { calls: counted, usage } = sessionUsage.parse(answer.json);
  expect([counted, usage.totalTokens]).toEqual([calls.length, completed.length * TOKENS]);
  expect(usage.tokensReported, 'what is lost is not said to be known').toBe(completed.length === calls.length);
}

const LOST_ONCE = ['lost 1 0', `completed 2 ${TOKENS}`];

test('each call whose answer was under way when its node died is in the ledger, and another is made of it', async () => {
  for (const [run, frames] of Object.entries(HELD)) billed.held.set(run, frames);
  billed.held.set(SECOND_STEP, 0);
  await tenant.openSession(idOf(HALF));
  const half = await tenant.events(idOf(HALF), { previews: true });
  const turns = new Map<string, string>();
  turns.set(SECOND_STEP, await begin(SECOND_STEP));
  await until('its second step is asked', () => billed.of(SECOND_STEP, 1) === 1, TURN_MS);
  for (const run of Object.keys(HELD)) turns.set(run, await begin(run));
  await until('the others are asked', () => Object.keys(HELD).every((run) => billed.of(run) === 1), TURN_MS);
  await until('what has come is shown', () => previewsOf(half).some(({ text }) => text?.includes('w1.3')), TURN_MS);
  turns.set(WHOLE, await begin(WHOLE));
  await until('the node has died', () => !isRunning(engine), TURN_MS);
  // Each of them is asked once more, and the next call is that of the next test.
  await engine.restart({ AGENT_HOST_FAULT_POINTS: `model.called=kill@${turns.size + 1}` });
  for (const run of [...Object.keys(HELD), WHOLE]) await check(run, turns.get(run) ?? '', LOST_ONCE);
  for (const run of [...Object.keys(HELD), WHOLE]) expect(billed.of(run), run).toBe(2);
  await check(SECOND_STEP, turns.get(SECOND_STEP) ?? '', [`completed 1 ${TOKENS}`, ...LOST_ONCE]);
  expect([billed.of(SECOND_STEP), billed.of(SECOND_STEP, 1)], 'the recorded answer is kept').toEqual([1, 2]);
  // Readers can tell the two answers apart, too.
  await until('the turn has ended', () => half.frames.some(({ event }) => event === 'turn.completed'), TURN_MS);
  const [lost, whole] = (await tenant.calls(idOf(HALF))).calls;
  for (const { modelCallId, offset, text = '' } of previewsOf(half)) {
    const written = wordsOf(HALF, modelCallId === lost?.id ? 1 : 2);
    expect([lost?.id, whole?.id]).toContain(modelCallId);
    expect(written.slice(offset, offset + text.length)).toBe(text);
  }
  half.close();
});

test('and one whose node died before it was sent, or right after its answer was recorded', async () => {
  const unsent = await begin('nothing was sent yet');
  await until('the node has died', () => !isRunning(engine), TURN_MS);
  expect(billed.of('nothing was sent yet')).toBe(0);
  // What this one records first is the answer that is still missing.
  await engine.restart({ AGENT_HOST_FAULT_POINTS: 'model.recorded=kill@2' });
  // It is in the ledger, since nobody can know.
  await check('nothing was sent yet', unsent, LOST_ONCE);
  expect(billed.of('nothing was sent yet')).toBe(1);
  const recorded = await begin(RECORDED);
  await until('the node has died', () => !isRunning(engine), TURN_MS);
  await engine.restart({ AGENT_HOST_FAULT_POINTS: '' });
  // Its second step was requested with it; whether it was asked by then is open.
  await check(RECORDED, recorded, [`completed 1 ${TOKENS}`, ...LOST_ONCE]);
  expect(billed.of(RECORDED), 'what is recorded is not asked for again').toBe(1);
});
