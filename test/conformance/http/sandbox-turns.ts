import { beforeAll, describe, expect, test } from 'vitest';
import * as boxes from '#src/http/wire/sandboxes.ts';
import type { EventRecord, TenantClient } from '../../support/client.ts';
import { until } from '../../support/wait-until.ts';
import { fresh, newTenant, refused, shaped } from './target.ts';
import type { HttpTarget } from './target.ts';

const TURN_MS = 60_000;

/** Turns whose agents use the built-in tools, at two nodes. */
export function sandboxTurnSuite(target: () => HttpTarget): void {
  let tenant: TenantClient;
  let there: TenantClient;

  beforeAll(async () => {
    tenant = await newTenant(target());
    there = tenant.at(target().nodes[1]);
    await tenant.saveAgent('coder', { sandboxTools: true });
  });

  const call = (name: string, input: object) => ({ toolCalls: [{ name, input }] });
  const bash = (command: string) => call('bash', { command });

  async function opened(body: object = {}): Promise<{ id: string; sandboxId: string }> {
    const id = fresh('s');
    const { sandboxId } = await tenant.openSession(id, { agentId: 'coder', ...body });
    return { id, sandboxId: sandboxId ?? '' };
  }

  async function played(id: string, steps: readonly unknown[], of = tenant): Promise<EventRecord[]> {
    const { turnId } = await of.play(id, steps);
    const end = await of.turnEnd(id, turnId, TURN_MS);
    expect(end.type, JSON.stringify(end.payload)).toBe('turn.completed');
    return (await of.items(id)).filter((item) => item.turnId === turnId);
  }

  const outcomes = (items: readonly EventRecord[]) =>
    items.flatMap((item) => (item.type === 'action.completed' ? [item.payload.outcome] : []));

  test('files stay from call to call, from turn to turn, and from node to node', async () => {
    const { id, sandboxId } = await opened();
    const items = await played(id, [
      call('write', { path: 'a.txt', content: 'one\n' }),
      bash('echo two >> a.txt; cat a.txt; exit 3'),
      call('grep', { pattern: 'tw.' }),
      { text: 'done' },
    ]);
    expect(outcomes(items)).toEqual([
      { kind: 'completed', output: { path: expect.stringContaining('a.txt'), size: 4 } },
      { kind: 'completed', output: { stdout: 'one\ntwo\n', stderr: '', exitCode: 3 } },
      { kind: 'completed', output: { matches: [expect.objectContaining({ line: 2, text: 'two' })] } },
    ]);
    expect(items.map(({ type }) => type)).toEqual([
      'command.message',
      ...['message.assistant', 'sandbox.state', 'sandbox.exec', 'action.completed'],
      ...['message.assistant', 'sandbox.exec', 'action.completed'],
      ...['message.assistant', 'sandbox.exec', 'action.completed'],
      ...['message.assistant', 'turn.completed'],
    ]);
    const execs = items.flatMap((item) => (item.type === 'sandbox.exec' ? [item.payload] : []));
    expect(execs).toMatchObject([
      { sandboxId, tool: 'write', outcome: 'completed', bytesWritten: 4 },
      { tool: 'bash', command: 'echo two >> a.txt; cat a.txt; exit 3', exitCode: 3, outcome: 'completed' },
      { tool: 'grep', bytesWritten: 0 },
    ]);
    const later = await played(id, [bash('cat a.txt'), { text: 'done' }], there);
    expect(outcomes(later)).toMatchObject([{ output: { stdout: 'one\ntwo\n' } }]);
    const file = await there.request({ path: `/v1/sandboxes/${sandboxId}/files/a.txt` });
    expect(file.text).toBe('one\ntwo\n');
  });

  test('failed calls say why, and the turn goes on', async () => {
    const { id } = await opened();
    const items = await played(id, [
      call('read', { path: 'none.txt' }),
      call('read', { path: '../etc/passwd' }),
      call('bash', { cmd: 'ls' }),
      { text: 'done' },
    ]);
    expect(outcomes(items)).toMatchObject([
      { kind: 'failed', code: 'not_found' },
      { kind: 'failed', code: 'invalid_path' },
    ]);
    expect(items.filter(({ type }) => type === 'sandbox.exec')).toHaveLength(2);
  });

  test('calls of one step run one after the other, in their order', async () => {
    const { id } = await opened();
    const names = ['a', 'b', 'c', 'd'];
    const toolCalls = names.map((name) => ({
      name: 'bash',
      input: { command: `echo ${name} >> all; cat all | wc -l` },
    }));
    const items = await played(id, [{ toolCalls }, bash('cat all'), { text: 'done' }]);
    expect(outcomes(items).at(-1)).toMatchObject({ output: { stdout: 'a\nb\nc\nd\n' } });
  });

  test('a session without a sandbox is told so', async () => {
    const { id } = await opened({ sandbox: false });
    const items = await played(id, [bash('ls'), { text: 'done' }]);
    expect(outcomes(items)).toMatchObject([{ kind: 'failed', code: 'sandbox_lost' }]);
  });

  describe('one sandbox, one turn', () => {
    test('with a turn running it is busy; afterwards it is not', async () => {
      const { id, sandboxId } = await opened();
      const path = `/v1/sandboxes/${sandboxId}`;
      const { turnId } = await tenant.play(id, [bash('echo x > x'), { text: 'done', delayMs: 600_000 }]);
      await until('the call has ended', async () => {
        return (await there.items(id)).some(({ type }) => type === 'sandbox.exec');
      });
      const shown = shaped(await there.request({ path }), 200, boxes.sandbox);
      expect(shown).toMatchObject({ state: 'running', sessions: [{ id, activeTurnId: turnId }] });
      const refusal = refused(await there.request({ method: 'DELETE', path }), 409, 'sandbox_busy');
      expect(refusal.activeTurnId).toBe(turnId);
      refused(await there.request({ method: 'POST', path: `${path}/reset`, body: {} }), 409, 'sandbox_busy');
      const file = { method: 'PUT', path: `${path}/files/y`, body: Buffer.from('y') };
      refused(await there.request(file), 409, 'sandbox_busy');
      await tenant.cancel(id);
      expect((await there.request(file)).status).toBe(200);
      await until('the sandbox is free', async () => {
        return shaped(await there.request({ path }), 200, boxes.sandbox).state === 'ready';
      });
    });

    test('two sessions take turns, and both see what the other has written', async () => {
      const box = fresh('box');
      await tenant.request({ method: 'PUT', path: `/v1/sandboxes/${box}`, body: {} });
      const [a, b] = [await opened({ sandbox: { id: box } }), await opened({ sandbox: { id: box } })];
      const steps = (name: string) => [
        bash(`echo begin ${name} >> log`),
        bash(`echo end ${name} >> log`),
        { text: 'done' },
      ];
      await Promise.all([played(a.id, steps('a')), played(b.id, steps('b'), there)]);
      const { text } = await there.request({ path: `/v1/sandboxes/${box}/files/log` });
      const order = text.startsWith('begin a') ? ['a', 'b'] : ['b', 'a'];
      expect(text).toBe(order.map((name) => `begin ${name}\nend ${name}\n`).join(''));
    });

    test('a cancelled turn ends its command, and nothing of it stays', async () => {
      const { id, sandboxId } = await opened();
      await played(id, [bash('echo before > f'), { text: 'done' }]);
      const { turnId } = await tenant.play(id, [bash('echo after > f; sleep 300'), { text: 'done' }]);
      await until('the sandbox is taken', async () => {
        const { json } = await there.request({ path: `/v1/sandboxes/${sandboxId}` });
        return boxes.sandbox.parse(json).state === 'running';
      });
      await there.cancel(id);
      expect((await there.turnEnd(id, turnId, TURN_MS)).type).toBe('turn.cancelled');
      const again = await played(id, [bash('cat f'), { text: 'done' }], there);
      expect(outcomes(again)).toMatchObject([{ output: { stdout: 'before\n' } }]);
    });
  });
}
