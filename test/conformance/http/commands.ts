import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import * as wire from '#src/http/wire/schemas.ts';
import { TenantClient } from '../../support/client.ts';
import type { Answer } from '../../support/client.ts';
import { claims, registration, SigningKey } from '../../support/tokens.ts';
import { historyHolds, newSession, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const accepted = (answer: Answer) => shaped(answer, 202, wire.commandAccepted);

/** Commands and what they leave in the history. */
export function commandSuite(target: () => HttpTarget): void {
  describe('message', () => {
    messages(target);
  });
  describe('cancel', () => {
    cancels(target);
  });
  describe('commands that answer', () => {
    answers(target);
  });
  describe('idempotency', () => {
    idempotency(target);
  });
}

function messages(target: () => HttpTarget): void {
  test('becomes a turn; the receipt has its own record’s cursor', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const receipt = accepted(await tenant.command(id, { type: 'message', content: 'hello' }, { requestId: 'rq' }));
    expect(receipt).toMatchObject({ status: 'accepted', requestId: 'rq' });
    const end = await tenant.turnEnd(id, receipt.turnId);
    expect(end).toMatchObject({ type: 'turn.completed', payload: { output: 'echo: hello' } });
    const items = await tenant.items(id);
    historyHolds(items, id);
    expect(items.map(({ type }) => type)).toEqual(['command.message', 'message.assistant', 'turn.completed']);
    expect(items[0]).toMatchObject({ cursor: receipt.cursor, turnId: receipt.turnId });
    expect(items[0]?.payload).toEqual({ requestId: 'rq', content: 'hello' });
  });

  test('of parts, with a manifest for this turn only', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const parts = [
      { type: 'text', text: 'one ' },
      { type: 'text', text: 'two' },
    ];
    const manifest = { instructions: 'Other.', model: { provider: 'fixture', model: 'another' } };
    const { turnId } = accepted(await tenant.command(id, { type: 'message', parts, manifest, whenBusy: 'refuse' }));
    expect((await tenant.turnEnd(id, turnId)).type).toBe('turn.completed');
    const [message] = await tenant.items(id);
    expect(message?.payload).toMatchObject({ parts, manifest, whenBusy: 'refuse' });
    const { turnId: next } = await tenant.message(id, 'again');
    await tenant.turnEnd(id, next);
    const { calls } = await tenant.calls(id);
    expect(calls.map(({ model }) => model)).toEqual(['another', 'any']);
  });

  test('with a manifest needs agents:write of a person: it could leave out what the agent asks approval for', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant, { subject: 'ann' });
    const signing = new SigningKey('k1');
    const body = registration([signing]);
    shaped(await tenant.request({ method: 'PUT', path: '/v1/tenant/issuers/people', body }), 200, wire.issuer);
    const holding = (scope: string): TenantClient[] => [
      tenant.as('ann', scope),
      new TenantClient({ ...tenant.credentials, key: signing.token(claims({ scope })) }),
    ];
    const manifest = { instructions: 'Other.', model: { provider: 'fixture', model: 'another' } };
    const message = { type: 'message', content: 'hello', manifest };
    for (const person of holding('sessions:own agents:read')) {
      const { details } = refused(await person.command(id, message), 403, 'scope_required');
      expect(details).toEqual({ scopes: ['agents:write'] });
    }
    expect(await tenant.items(id)).toEqual([]);
    for (const sender of [tenant, ...holding('sessions:own agents:write')]) {
      const { turnId } = accepted(await sender.command(id, message));
      expect((await tenant.turnEnd(id, turnId)).type).toBe('turn.completed');
    }
  });

  test('is refused while a turn is active, which the refusal names', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const { turnId } = await tenant.play(id, [{ text: 'late', delayMs: 60_000 }]);
    const again = await tenant.at(target().nodes[1]).command(id, { type: 'message', content: 'me too' });
    expect(refused(again, 409, 'session_busy').activeTurnId).toBe(turnId);
    expect(await tenant.session(id)).toMatchObject({ status: 'running', activeTurnId: turnId });
    await tenant.cancel(id);
    await tenant.turnEnd(id, turnId);
    expect((await tenant.items(id)).filter(({ type }) => type === 'command.message')).toHaveLength(1);
  });

  test('whose model fails ends as failed, and the next one runs', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const { turnId } = await tenant.play(id, [{ error: { code: 'overloaded', message: 'No.' } }]);
    expect(await tenant.turnEnd(id, turnId)).toMatchObject({
      type: 'turn.failed',
      payload: { error: { code: 'overloaded' } },
    });
    const { turnId: next } = await tenant.message(id, 'now');
    expect((await tenant.turnEnd(id, next)).type).toBe('turn.completed');
    expect((await tenant.calls(id)).calls.map(({ outcome }) => outcome)).toEqual(['failed', 'completed']);
  });

  test('of several steps: a tool that the agent does not have is a failed result, and the turn goes on', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const { turnId } = await tenant.play(id, [
      { text: 'first', toolCalls: [{ name: 'absent', input: { a: 1 } }] },
      {
        text: 'second',
        toolCalls: [
          { name: 'absent', input: {} },
          { name: 'other', input: null },
        ],
      },
      { text: 'done' },
    ]);
    const end = await tenant.turnEnd(id, turnId);
    expect(end).toMatchObject({ type: 'turn.completed', payload: { output: 'done' } });
    const items = await tenant.items(id);
    historyHolds(items, id);
    expect(items.filter(({ type }) => type === 'message.assistant')).toHaveLength(3);
    expect((await tenant.calls(id)).calls).toHaveLength(3);
  });

  test('with a file part of an artifact that is not there is not found', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const parts = [{ type: 'file', artifactId: 'af_none' }];
    refused(await tenant.command(id, { type: 'message', parts }), 404, 'not_found');
    expect(await tenant.items(id)).toEqual([]);
  });
}

function cancels(target: () => HttpTarget): void {
  test('ends the running turn, with its reason', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const { turnId } = await tenant.play(id, [{ text: 'late', delayMs: 60_000 }]);
    const receipt = await tenant.cancel(id, { turnId, reason: 'enough' });
    expect(receipt.turnId).toBe(turnId);
    expect(await tenant.turnEnd(id, turnId)).toMatchObject({ type: 'turn.cancelled', payload: { reason: 'enough' } });
    const items = await tenant.items(id);
    historyHolds(items, id);
    expect(items.find(({ type }) => type === 'command.cancel')?.cursor).toBe(receipt.cursor);
    expect((await tenant.session(id)).lastTurn).toMatchObject({ turnId, outcome: 'cancelled' });
  });

  test('with nothing to cancel writes the command alone', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const receipt = await tenant.cancel(id);
    expect(receipt.turnId).toBeNull();
    const [only, ...others] = await tenant.items(id);
    expect(others).toEqual([]);
    expect(only).toMatchObject({ type: 'command.cancel', turnId: null, cursor: receipt.cursor });
  });

  test('of a turn that is over leaves the running one alone', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const { turnId: over } = await tenant.message(id, 'quick');
    await tenant.turnEnd(id, over);
    const { turnId } = await tenant.play(id, [{ text: 'late', delayMs: 60_000 }]);
    expect((await tenant.cancel(id, { turnId: over })).turnId).toBeNull();
    expect((await tenant.session(id)).activeTurnId).toBe(turnId);
    await tenant.cancel(id, { turnId });
    expect((await tenant.turnEnd(id, turnId)).type).toBe('turn.cancelled');
  });
}

function answers(target: () => HttpTarget): void {
  test('are refused where nothing waits, and an action result without an executor', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const approve = { type: 'approve', interactionId: 'in_none', approved: true };
    refused(await tenant.command(id, approve), 409, 'session_not_waiting');
    const respond = { type: 'respond', interactionId: 'in_none', value: { any: 1 } };
    refused(await tenant.command(id, respond), 409, 'session_not_waiting');
    const outcome = { kind: 'completed', output: 1 };
    const result = { type: 'action_result', actionId: 'ac_1', claimId: 'cl_1', generation: 1, outcome };
    refused(await tenant.command(id, result), 403, 'key_role_mismatch');
    expect(await tenant.items(id)).toEqual([]);
  });
}

function idempotency(target: () => HttpTarget): void {
  test('holds although an agent that the message used has gone since', async () => {
    const tenant = await newTenant(target());
    await tenant.saveAgent('helper');
    const id = await newSession(tenant);
    const manifest = {
      instructions: '',
      model: { provider: 'fixture', model: 'any' },
      agents: [{ agentId: 'helper', description: 'Helps.' }],
    };
    const body = { type: 'message', content: 'hello', manifest, idempotencyKey: 'k' };
    const first = accepted(await tenant.command(id, body));
    await tenant.turnEnd(id, first.turnId);
    await tenant.request({ method: 'DELETE', path: '/v1/agents/helper' });
    expect(accepted(await tenant.command(id, body)).turnId).toBe(first.turnId);
    refused(await tenant.command(id, { ...body, idempotencyKey: 'another' }), 404, 'not_found');
  });

  test('50 identical requests on two nodes: one event, 50 equal answers', async () => {
    const tenant = await newTenant(target());
    const clients = target().nodes.map((node) => tenant.at(node));
    for (const type of ['message', 'cancel'] as const) {
      const id = await newSession(tenant);
      const members = type === 'message' ? { type, content: 'once' } : { type };
      const ids = { requestId: 'rq', idempotencyKey: randomUUID() };
      const all = await Promise.all(
        Array.from({ length: 50 }, async (_, i) => await (clients[i % 2] ?? tenant).command(id, members, ids)),
      );
      const receipts = all.map(accepted);
      for (const receipt of receipts) expect(receipt).toEqual(receipts[0]);
      if (type === 'message') await tenant.turnEnd(id, receipts[0]?.turnId ?? null);
      const items = await tenant.items(id);
      expect(items.filter((item) => item.type === `command.${type}`)).toHaveLength(1);
      historyHolds(items, id);
    }
  });

  test('a repetition gives the first receipt, with the first requestId, before the state is looked at', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const key = randomUUID();
    const first = await tenant.play(id, [{ text: 'late', delayMs: 60_000 }], { requestId: 'one', idempotencyKey: key });
    // Busy now, and later idle: neither matters.
    for (const node of target().nodes) {
      const options = { requestId: 'two', idempotencyKey: key };
      expect(await tenant.at(node).play(id, [{ text: 'late', delayMs: 60_000 }], options)).toEqual(first);
    }
    await tenant.cancel(id);
    await tenant.turnEnd(id, first.turnId);
    const again = { requestId: 'three', idempotencyKey: key };
    expect(await tenant.play(id, [{ text: 'late', delayMs: 60_000 }], again)).toEqual(first);
    expect((await tenant.items(id)).filter(({ type }) => type === 'command.message')).toHaveLength(1);
  });

  test('the same key with another body is a conflict, before the state too', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const key = randomUUID();
    const { turnId } = await tenant.play(id, [{ text: 'late', delayMs: 60_000 }], { idempotencyKey: key });
    for (const node of target().nodes) {
      const answer = await tenant.at(node).command(id, { type: 'message', content: 'other' }, { idempotencyKey: key });
      refused(answer, 409, 'idempotency_conflict');
      refused(
        await tenant.at(node).command(id, { type: 'cancel' }, { idempotencyKey: key }),
        409,
        'idempotency_conflict',
      );
    }
    await tenant.cancel(id);
    await tenant.turnEnd(id, turnId);
    expect((await tenant.items(id)).filter(({ type }) => type === 'command.message')).toHaveLength(1);
  });

  test('the order of members is not part of the body', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const idempotencyKey = randomUUID();
    const path = `/v1/sessions/${id}/commands`;
    const send = async (body: unknown) => accepted(await tenant.request({ method: 'POST', path, body }));
    const first = await send({ type: 'cancel', reason: 'r', requestId: 'a', idempotencyKey });
    expect(await send({ idempotencyKey, requestId: 'b', reason: 'r', type: 'cancel' })).toEqual(first);
  });

  test('a refused command stores nothing: its key may be used again', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    const options = { idempotencyKey: randomUUID() };
    const { turnId } = await tenant.play(id, [{ text: 'late', delayMs: 60_000 }]);
    refused(await tenant.command(id, { type: 'message', content: 'x' }, options), 409, 'session_busy');
    await tenant.cancel(id);
    await tenant.turnEnd(id, turnId);
    const receipt = accepted(await tenant.command(id, { type: 'message', content: 'y' }, options));
    expect((await tenant.turnEnd(id, receipt.turnId)).type).toBe('turn.completed');
  });

  test('a key is one of its session and subject', async () => {
    const tenant = await newTenant(target());
    const [one, two] = [await newSession(tenant, { subject: 'ann' }), await newSession(tenant, { subject: 'ann' })];
    const options = { idempotencyKey: randomUUID() };
    const receipts = [
      await tenant.cancel(one, {}, options),
      await tenant.cancel(two, {}, options),
      await tenant.as('ann').cancel(one, {}, options),
    ];
    expect(new Set(receipts.map(({ cursor }) => cursor)).size).toBe(3);
    expect(await tenant.items(one)).toHaveLength(2);
  });

  test('messages that wait may be so long together that all of their turns can end at once', async () => {
    const tenant = await newTenant(target());
    const id = await newSession(tenant);
    await tenant.play(id, [{ text: 'late', delayMs: 60_000 }]);
    // Without a model: a turn with it fails as soon as it starts.
    const send = async (chars: number) =>
      await tenant.command(id, {
        type: 'message',
        content: 'x',
        whenBusy: 'queue',
        manifest: { instructions: 'x'.repeat(chars) },
      });
    const waiting = [accepted(await send(400_000)), accepted(await send(400_000))];
    expect(refused(await send(400_000), 409, 'limit_exceeded').details).toEqual({ limit: 'queue' });
    accepted(await send(1));
    accepted(await tenant.command(id, { type: 'cancel' }));
    const ends = await Promise.all(waiting.map(async ({ turnId }) => await tenant.turnEnd(id, turnId)));
    expect(ends.map(({ type }) => type)).toEqual(['turn.failed', 'turn.failed']);
    expect((await tenant.session(id)).activeTurnId).toBeNull();
  });
}
