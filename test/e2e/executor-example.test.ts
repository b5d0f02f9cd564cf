import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import { registerExecutor } from '../support/executor.ts';
import { startHost } from '../support/host.ts';
import { until } from '../support/wait-until.ts';

const EXAMPLE = fileURLToPath(new URL('../../scripts/executor-example.ts', import.meta.url));

test('the executor of the documentation runs a tool, and goes on after the Host was away', async () => {
  await using host = await startHost();
  const tenant = await new AdminClient(host).createTenant();
  await tenant.saveAgent('agent', { tools: [{ name: 'add', inputSchema: { type: 'object' } }] });
  const token = await registerExecutor(tenant);
  const env = { ...process.env, HOST_URL: host.url, TENANT_ID: tenant.tenantId, EXECUTOR_TOKEN: token };
  const child = spawn(process.execPath, [EXAMPLE], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
  try {
    await until('it is connected', () => said.includes('Connected.'), 20_000);
    await tenant.openSession('sum');
    for (const [a, b, sum] of [
      [2, 3, 5],
      [40, 2, 42],
    ]) {
      const { turnId } = await tenant.play('sum', [{ toolCalls: [{ name: 'add', input: { a, b } }] }]);
      const end = await tenant.turnEnd('sum', turnId);
      expect(end, said).toMatchObject({ type: 'turn.completed', payload: { output: `echo: ${sum}` } });
      const { port } = new URL(host.url);
      // The same address again, as behind a load balancer.
      await host.restart({ AGENT_HOST_LISTEN: `127.0.0.1:${port}` });
    }
    await until('both are told', () => said.match(/completed/g)?.length === 2);
  } finally {
    child.kill('SIGKILL');
  }
});
