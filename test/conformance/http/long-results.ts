import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/executors.ts';
import * as commandWire from '#src/http/wire/schemas.ts';
import { ArtifactClient } from '../../support/artifacts.ts';
import type { TenantClient } from '../../support/client.ts';
import { done, ExecutorClient, executorOf, registerExecutor } from '../../support/executor.ts';
import { refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';
import { call, inStatus, newToolTenant, ofType, outputOf, payload, play } from './tool-world.ts';

/** Characters of JSON that the history has of a result. */
const WHOLE_CHARS = 262_144;
const LONG = `${'Öl '.repeat(100_000)}end`;
const NOTE = 'The result is too long to be shown whole; the artifact has all of it.';
const anything = { type: 'object' };
const TOOLS = [
  { name: 'find', inputSchema: anything },
  { name: 'text', inputSchema: anything, outputSchema: { type: 'string' } },
  { name: 'number', inputSchema: anything, outputSchema: { type: 'number' } },
];

interface Shown {
  readonly note?: string;
  readonly artifactId?: string;
}

/** Results of executors that are too long for the history and for a model. */
export function longResultSuite(target: () => HttpTarget): void {
  describe('a long result', () => {
    kept(target);
  });
  describe('a long result that is sent again, or does not count', () => {
    repeated(target);
  });
}

const storedIn = async (tenant: TenantClient, id: string): Promise<number> =>
  (await ofType(tenant, id, 'artifact.created')).length;

function kept(target: () => HttpTarget): void {
  /** What the history has of the result of a tool, and what the model was shown. */
  const run = async (tenant: TenantClient, name: string, output: unknown) => {
    await using _ = await executorOf(tenant, { nodes: target().nodes, run: () => done(output) });
    const { id, turnId } = await play(tenant, [call(name)]);
    const told = String(await outputOf(tenant, id, turnId));
    const [completed] = await ofType(tenant, id, 'action.completed');
    return { id, told, outcome: payload(completed).outcome };
  };

  const pages = { pages: [LONG] };
  test.each([
    { name: 'text', output: LONG, file: 'text.txt', contentType: 'text/plain', content: LONG },
    {
      ...{ name: 'find', output: pages, file: 'find.json' },
      ...{ contentType: 'application/json', content: JSON.stringify(pages) },
    },
  ])('of $name is an artifact, of which model and history have the beginning', async (one) => {
    const { name, output, file, contentType, content } = one;
    const tenant = await newToolTenant(target(), { tools: TOOLS });
    const { id, told, outcome } = await run(tenant, name, output);
    const shown = Object(outcome?.output) as Shown;
    const size = Buffer.byteLength(content);
    const { artifactId = '' } = shown;
    const beginning = content.slice(0, 2_000);
    expect(shown).toEqual({ note: NOTE, artifactId, version: 1, name: file, size, beginning });
    expect(JSON.parse(told.slice('echo: '.length))).toEqual(shown);
    const artifacts = new ArtifactClient(tenant);
    const { text } = await artifacts.content(artifactId);
    expect(text).toBe(content);
    expect(await artifacts.get(artifactId)).toMatchObject({
      contentType,
      sessionId: id,
      versions: [{ source: 'tool' }],
    });
  });

  test('up to the limit is whole, and so is the output of a hook', async () => {
    const tenant = await newToolTenant(target(), { tools: TOOLS });
    const fits = 'x'.repeat(WHOLE_CHARS - 2);
    const { id, outcome } = await run(tenant, 'find', fits);
    expect(outcome?.output).toBe(fits);
    expect(await storedIn(tenant, id)).toBe(0);
    const hooked = await newToolTenant(target(), { hooks: [{ at: 'after', scope: 'turn' }] });
    await using _ = await executorOf(hooked, { nodes: target().nodes, run: () => done({ output: LONG }) });
    const turn = await play(hooked, [{ text: 'short' }]);
    expect(await outputOf(hooked, turn.id, turn.turnId)).toBe(LONG);
    expect(await storedIn(hooked, turn.id)).toBe(0);
  });

  test('that does not fit its schema is none, and is not kept', async () => {
    const tenant = await newToolTenant(target(), { tools: TOOLS });
    const { id, outcome } = await run(tenant, 'number', LONG);
    expect(outcome).toMatchObject({ kind: 'failed', code: 'tool_output_invalid' });
    expect(await storedIn(tenant, id)).toBe(0);
  });

  test('for which the tenant has no room is whole: it was accepted, and nobody else has it', async () => {
    const tenant = await newToolTenant(target(), { tools: TOOLS });
    await new ArtifactClient(tenant).limit({ totalBytes: 1_000 });
    const { id, told, outcome } = await run(tenant, 'find', LONG);
    expect(outcome?.output).toBe(LONG);
    expect(told).toBe(`echo: ${LONG}`);
    expect(await storedIn(tenant, id)).toBe(0);
  });
}

function repeated(target: () => HttpTarget): void {
  const claimed = async () => {
    const tenant = await newToolTenant(target(), { tools: TOOLS });
    const executor = new ExecutorClient(tenant, await registerExecutor(tenant));
    // The turn waits for the other one, so that it knows what was answered.
    const { id } = await play(tenant, [{ toolCalls: [...call('find').toolCalls, ...call('find').toolCalls] }]);
    const { waits } = await inStatus(target(), tenant, id, 'waiting');
    const actionId = waits[0]?.id ?? '';
    const { claimId, generation } = shaped(await executor.claim(actionId), 200, wire.claimed);
    return { tenant, executor, id, claim: { actionId, claimId, generation } };
  };

  test('under the same key, or another, at once or later, is kept once', async () => {
    const { tenant, executor, id, claim } = await claimed();
    const keys = ['a', 'a', 'b', 'c'];
    const at = target().nodes.map((node) => executor.at(node));
    const answers = await Promise.all(
      keys.map(async (key, n) => await (at[n % at.length] ?? executor).result(id, claim, done(LONG), key)),
    );
    const receipts = answers.map((answer) => shaped(answer, 202, commandWire.commandAccepted));
    expect(new Set(receipts.map(({ cursor }) => cursor)).size).toBe(1);
    shaped(await executor.result(id, claim, done(LONG), 'a'), 202, commandWire.commandAccepted);
    const left = (await storedIn(tenant, id)) - (await ofType(tenant, id, 'artifact.deleted')).length;
    expect(left).toBe(1);
  });

  test('of a claim that has ended is refused, and not kept', async () => {
    const { tenant, executor, id, claim } = await claimed();
    shaped(await executor.result(id, claim, done('short')), 202, commandWire.commandAccepted);
    refused(await executor.result(id, claim, done(LONG)), 409, 'claim_stale');
    refused(await executor.result(id, { ...claim, claimId: 'cl_absent' }, done(LONG)), 409, 'claim_stale');
    expect(await storedIn(tenant, id)).toBe(0);
  });
}
