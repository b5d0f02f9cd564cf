import { spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

/**
 * What a Host in memory costs in a project of somebody else: 100 tests with vitest, each a turn, with a Host for each test
 * and with a tenant for each. Needs the package (`npm run prepack`); prints time and memory. `docs/in-memory.md` has figures.
 */
const ROOT = dirname(import.meta.dirname);
const TESTS = 100;

const TURN = `
async function turn(tenant, n) {
  await tenant.client.agents.save('agent', { instructions: 'Answer.', model: { provider: 'fixture', model: 'any' } });
  const session = await tenant.client.sessions.open({ agentId: 'agent' });
  expect(await session.ask('test ' + n)).toBe('echo: test ' + n);
}
afterAll(() => console.log('peak ' + Math.round(process.resourceUsage().maxRSS / 1024) + ' MB'));
`;
const HEAD = `import { afterAll, beforeAll, expect, test } from 'vitest';
import { createMemoryHost } from 'agent-runtime-host';
${TURN}`;

const FILES = {
  hosts: `${HEAD}
test.each(Array.from({ length: ${TESTS} }, (_, n) => n))('test %i on a Host of its own', async (n) => {
  await using host = await createMemoryHost();
  await turn(await host.tenant(), n);
});`,
  tenants: `${HEAD}
let host;
beforeAll(async () => { host = await createMemoryHost(); });
afterAll(async () => await host.close());
test.each(Array.from({ length: ${TESTS} }, (_, n) => n))('test %i in a tenant of its own', async (n) => {
  await turn(await host.tenant(), n);
});`,
};

const project = await mkdtemp(join(tmpdir(), 'agent-host-plain-'));
try {
  await mkdir(join(project, 'node_modules'));
  await symlink(ROOT, join(project, 'node_modules/agent-runtime-host'));
  await symlink(join(ROOT, 'node_modules/vitest'), join(project, 'node_modules/vitest'));
  await writeFile(join(project, 'package.json'), JSON.stringify({ type: 'module' }));
  for (const [name, text] of Object.entries(FILES)) {
    await writeFile(join(project, `${name}.test.mjs`), text);
    const begun = performance.now();
    const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
    const args = [vitest, 'run', '--root', project, `${name}.test.mjs`, '--testTimeout', '60000'];
    const { stdout, status } = spawnSync(process.execPath, args, { encoding: 'utf8', cwd: project });
    if (status !== 0) throw new Error(`the tests failed:\n${stdout}`);
    const seconds = (performance.now() - begun) / 1_000;
    const peak = /peak (\d+ MB)/.exec(stdout)?.[1] ?? 'unknown';
    process.stdout.write(
      `${TESTS} tests, ${name}: ${seconds.toFixed(1)} s, ${((seconds * 1_000) / TESTS).toFixed(0)} ms a test, peak ${peak}\n`,
    );
  }
} finally {
  await rm(project, { recursive: true, force: true });
}
