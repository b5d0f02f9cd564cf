import { execFile, spawnSync } from 'node:child_process';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../tidy/tree.ts';

const run = promisify(execFile);
const MINUTE_MS = 60_000;
/** As in a browser; Node's own types have the same globals. */
const LIB = ['es2022', 'dom', 'dom.iterable'];

const USE = `import { createClient, Problem } from 'agent-runtime-host/client';
import type { EventRecord, Manifest } from 'agent-runtime-host/client';

const manifest: Manifest = { instructions: 'Be brief.', tools: [{ name: 'add', inputSchema: { type: 'object' } }] };
const client = createClient({ url: ['http://127.0.0.1:1'], key: 'k', tenant: 't', retryMs: 0 });

export async function talk(): Promise<string> {
  await client.agents.save('a', manifest);
  const session = await client.sessions.open({ agentId: 'a' });
  for await (const event of session.events({ from: 'latest' })) {
    const known: EventRecord = event;
    if (known.type === 'turn.completed') return known.payload.usage.costUsd.toFixed(2);
    // @ts-expect-error -- a record of another type has no such payload
    if (known.type === 'turn.failed') known.payload.usage;
  }
  return '';
}

// @ts-expect-error -- a session needs an agent
void (() => client.sessions.open({}));
client.request('GET /v1/me', {}).catch((error: unknown) => {
  if (error instanceof Problem && error.code === 'not_found') return;
  console.log(error instanceof TypeError ? 'no Host there' : error);
});
`;

/** As in a project of somebody else: nothing but the package is there, and it brings nothing with it. */
describe('the package that npm pack makes', () => {
  let project: string;

  beforeAll(async () => {
    project = await mkdtemp(join(tmpdir(), 'agent-host-package-'));
    const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', project], {
      cwd: ROOT,
      env: { ...process.env, npm_config_loglevel: 'error' },
    });
    const [{ filename = '' } = {}] = JSON.parse(stdout.slice(stdout.indexOf('['))) as { filename?: string }[];
    const place = join(project, 'node_modules/agent-runtime-host');
    await mkdir(place, { recursive: true });
    await run('tar', ['-xzf', join(project, filename), '-C', place, '--strip-components=1']);
    await writeFile(join(project, 'package.json'), JSON.stringify({ type: 'module' }));
    await writeFile(join(project, 'use.ts'), USE);
  }, 3 * MINUTE_MS);

  afterAll(async () => {
    await rm(project, { recursive: true, force: true });
  });

  test.each([
    ['nodenext', 'nodenext'],
    ['esnext', 'bundler'],
  ])(
    'type-checks in an empty project, with the modules of %s',
    async (module, resolution) => {
      const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
      const compilerOptions = { strict: true, noEmit: true, types: [], target: 'es2022', lib: LIB, module };
      const config = { compilerOptions: { ...compilerOptions, moduleResolution: resolution }, files: ['use.ts'] };
      await writeFile(join(project, 'tsconfig.json'), JSON.stringify(config));
      const { stdout, status } = spawnSync(process.execPath, [tsc, '-p', project], { encoding: 'utf8' });
      expect(stdout).toBe('');
      expect(status).toBe(0);
    },
    MINUTE_MS,
  );

  test(
    'runs under this Node, and under the one that the machine has',
    async () => {
      const script = USE.replaceAll(/^import type .*$/gm, '')
        .replaceAll(/: (Manifest|EventRecord|unknown|Promise<string>)/g, '')
        .replaceAll(/ as \w+/g, '');
      await writeFile(join(project, 'use.mjs'), script);
      for (const node of [process.execPath, 'node']) {
        const { stdout } = await run(node, ['use.mjs'], { cwd: project });
        expect(stdout).toBe('no Host there\n');
      }
    },
    MINUTE_MS,
  );
});
