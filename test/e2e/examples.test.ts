import { spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import type { TenantClient } from '../support/client.ts';
import { registerExecutor } from '../support/executor.ts';
import { installPackage, says, start } from '../support/example.ts';
import type { Program } from '../support/example.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { until } from '../support/wait-until.ts';
import { ROOT } from '../tidy/tree.ts';

const SOON_MS = 120_000;
const EXAMPLES = join(ROOT, 'examples');
const TOOL = { inputSchema: { type: 'object' } };

describe('the examples', () => {
  let host: Host;
  let tenant: TenantClient;
  let project: string;

  beforeAll(async () => {
    project = await mkdtemp(join(tmpdir(), 'agent-host-examples-'));
    host = await startHost({ env: { AGENT_HOST_LEASE_SECONDS: '9' } });
    tenant = await new AdminClient(host).createTenant();
    await tenant.saveAgent('agent', { tools: ['add', 'hold'].map((name) => ({ ...TOOL, name })) });
  });

  afterAll(async () => {
    await host[Symbol.asyncDispose]();
    await rm(project, { recursive: true, force: true });
  });

  const executorEnvironment = async (): Promise<Record<string, string>> => ({
    HOST_URL: host.url,
    TENANT_ID: tenant.tenantId,
    EXECUTOR_TOKEN: await registerExecutor(tenant),
  });

  async function add(session: string, input: object): Promise<unknown> {
    const { turnId } = await tenant.play(session, [{ toolCalls: [{ name: 'add', input }] }]);
    return (await tenant.turnEnd(session, turnId, SOON_MS)).payload;
  }

  /** The same address again, as behind a load balancer. */
  const restart = async (): Promise<void> =>
    await host.restart({ AGENT_HOST_LISTEN: `127.0.0.1:${new URL(host.url).port}` });

  test('the executor with fetch runs a tool, and continues after the Host was away', async () => {
    const file = join(EXAMPLES, 'fetch-executor/executor.ts');
    await using executor = start(process.execPath, [file], await executorEnvironment());
    await says(executor, 'Connected.');
    await tenant.openSession('fetched');
    expect(await add('fetched', { a: 2, b: 3 }), executor.said()).toMatchObject({ output: 'echo: 5' });
    await restart();
    expect(await add('fetched', { a: 40, b: 2 }), executor.said()).toMatchObject({ output: 'echo: 42' });
    await until('both results are known', () => executor.said().match(/completed/g)?.length === 2, SOON_MS);
  });

  describe('the support agent', () => {
    /** In a project of somebody else, where the package is installed. */
    beforeAll(async () => {
      await installPackage(project);
      const { url, tenantId, key } = tenant.credentials;
      await writeFile(join(project, 'context.json'), JSON.stringify({ url, tenant: tenantId, key }));
      await writeFile(
        join(project, 'support-agent.ts'),
        await readFile(join(EXAMPLES, 'support-agent/support-agent.ts')),
      );
    });

    const support = (...args: string[]): Program =>
      start(process.execPath, [join(project, 'support-agent.ts'), ...args], {
        AGENT_HOST_CONTEXT: join(project, 'context.json'),
      });
    const QUESTION = 'person: allow refund {"order":"1042","euros":30}? [y/n]';

    test('has at most 60 lines', async () => {
      const text = await readFile(join(EXAMPLES, 'support-agent/support-agent.ts'), 'utf8');
      expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(60);
    });

    test.each([
      ['y', [], ['tool:   refund completed', 'answer: echo: 30 euros are refunded for order 1042']],
      ['n', [], ['answer: echo: ']],
      [null, ['--yes'], ['tool:   refund completed', 'answer: echo: 30 euros are refunded for order 1042']],
    ] as const)('asks a person, who says %s %j', async (typed, args, lines) => {
      await using program = support(...args);
      await says(program, QUESTION);
      if (typed !== null) program.type(typed);
      expect(await program.ended, program.said()).toBe(0);
      expect(program.said()).toContain('agent:  I am sorry. I refund it.\n');
      for (const line of lines) expect(program.said()).toContain(line);
      expect(program.said().includes('are refunded')).toBe(typed !== 'n');
    });
  });

  test('the tests of an agent pass', async () => {
    // In this checkout, as its page says.
    await using made = start(process.execPath, [join(ROOT, 'scripts/package.ts')], {});
    expect(await made.ended, made.said()).toBe(0);
    await using program = start(process.execPath, ['--test', join(EXAMPLES, 'agent-test/refunds.test.ts')], {});
    expect(await program.ended, program.said()).toBe(0);
    expect(program.said()).toMatch(/pass 2\n/);
  });

  describe.each(hasPython() ? ['python3'] : [])('the executor in Python (%s)', (python) => {
    const folder = join(EXAMPLES, 'python-executor');
    const environment = async (): Promise<Record<string, string>> => ({
      ...(await executorEnvironment()),
      PYTHONDONTWRITEBYTECODE: '1',
      PYTHONPATH: folder,
    });

    test('runs tools, reports what they raise, and continues after the Host was away', async () => {
      await using executor = start(python, [join(folder, 'executor.py')], await environment());
      await says(executor, 'Connected.');
      await tenant.openSession('sum');
      expect(await add('sum', { a: 2, b: 3 }), executor.said()).toMatchObject({ output: 'echo: 5' });
      expect(await add('sum', { a: 2 })).toMatchObject({ output: expect.stringContaining("'b'") });
      await restart();
      expect(await add('sum', { a: 40, b: 2 }), executor.said()).toMatchObject({ output: 'echo: 42' });
      executor.signal('SIGTERM');
      expect(await executor.ended, executor.said()).toBe(0);
    });

    test('keeps its claim, and is stopped only when what runs is done', async () => {
      const free = join(project, 'free');
      const script = [
        'import os, sys, time, executor',
        'sent = executor.call',
        'def call(path, body):',
        '    answer = sent(path, body)',
        '    executor.say("sent " + path)',
        '    return answer',
        'executor.call = call',
        'def hold(given):',
        '    while not os.path.exists(sys.argv[1]): time.sleep(0.05)',
        '    return "held"',
        'executor.TOOLS["hold"] = hold',
        'executor.main()',
      ];
      await using executor = start(python, ['-c', script.join('\n'), free], await environment());
      await says(executor, 'Connected.');
      await tenant.openSession('long');
      const { turnId } = await tenant.play('long', [{ toolCalls: [{ name: 'hold', input: {} }] }]);
      await until('a heartbeat is answered', () => /sent \S+\/heartbeat/.test(executor.said()), SOON_MS);
      executor.signal('SIGTERM');
      await writeFile(free, '');
      expect(await executor.ended, executor.said()).toBe(0);
      expect(executor.said()).toMatch(/ completed\n[\s\S]*Stopped\.\n$/);
      expect(await tenant.turnEnd('long', turnId, SOON_MS)).toMatchObject({
        type: 'turn.completed',
        payload: { output: 'echo: held' },
      });
    });

    test('a token that is refused ends it with what the Host says', async () => {
      const env = { ...(await environment()), EXECUTOR_TOKEN: 'not-a-token-of-mine' };
      await using executor = start(python, [join(folder, 'executor.py')], env);
      expect(await executor.ended).toBe(1);
      expect(executor.said()).toMatch(/^401 \{.*\n$/);
    });
  });
});

function hasPython(): boolean {
  return spawnSync('python3', ['--version']).status === 0;
}
