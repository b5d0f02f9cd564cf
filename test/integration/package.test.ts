import { execFile } from 'node:child_process';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from '../tidy/tree.ts';

const run = promisify(execFile);
const LONG_MS = 180_000;
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

const REACT = `import { createClient } from 'agent-runtime-host/client';
import { useSession } from 'agent-runtime-host/react';
import type { UseSession } from 'agent-runtime-host/react';
import { createElement } from 'react';
import type { ReactNode } from 'react';

const client = createClient({ url: '/agents' });

export function Page({ id }: { id: string }): ReactNode {
  const session: UseSession = useSession(client, id);
  // @ts-expect-error -- events are not for writing
  void (() => session.events.push());
  const said = session.events.map((event) => (event.type === 'message.assistant' ? event.payload.text : null));
  return createElement('p', { onClick: () => void session.send('Hello') }, ...said);
}
`;
const MEMORY = `import { createMemoryHost } from 'agent-runtime-host';
import type { MemoryHost, ModelStep } from 'agent-runtime-host';

const host: MemoryHost = await createMemoryHost({ model: ({ step }: ModelStep) => \`step \${step}\` });
const { client } = await host.tenant();
await client.agents.save('a', { instructions: 'Be brief.', model: { provider: 'fixture', model: 'any' } });
const died = host.fail('model.answered');
const session = await client.sessions.open({ agentId: 'a' });
console.log(await session.ask('Hello'));
await died;
const end = await host.until(session.id, 'turn.completed');
console.log(end.payload.usage.totalTokens);
// @ts-expect-error -- there is no such point
void (() => host.fail('model.forgotten'));
await host.close();
`;
/** What the package is used with: React is a peer, of which the types are somebody else's too. */
const PEERS = ['react', 'react-dom', 'scheduler', '@types/react', 'csstype'];

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
    await writeFile(join(project, 'page.ts'), REACT);
    await mkdir(join(project, 'node_modules/@types'));
    for (const name of PEERS) await symlink(join(ROOT, 'node_modules', name), join(project, 'node_modules', name));
  }, LONG_MS);

  afterAll(async () => {
    await rm(project, { recursive: true, force: true });
  });

  /** What a compiler says of the project: nothing, if it is right. The worker is not held up, which has to answer meanwhile. */
  const wrongs = async (tsc: string): Promise<string> =>
    await run(process.execPath, [tsc, '-p', project]).then(
      ({ stdout }) => stdout,
      (error: Error & { readonly stdout?: string }) => `${error.stdout ?? ''}${error.message}`,
    );

  test.each([
    ['7', 'typescript', 'nodenext', 'nodenext'],
    ['7', 'typescript', 'esnext', 'bundler'],
    ['5.9', 'older-typescript', 'nodenext', 'nodenext'],
    ['5.9', 'older-typescript', 'esnext', 'bundler'],
  ])(
    'type-checks in an empty project under TypeScript %s (%s), with the modules of %s',
    async (version, compiler, module, resolution) => {
      const tsc = join(ROOT, 'node_modules', compiler, 'bin/tsc');
      const said = await run(process.execPath, [tsc, '--version']);
      expect(said.stdout).toContain(`Version ${version}.`);
      const compilerOptions = { strict: true, noEmit: true, types: [], target: 'es2022', lib: LIB, module };
      const config = {
        compilerOptions: { ...compilerOptions, moduleResolution: resolution },
        files: ['use.ts', 'page.ts'],
      };
      await writeFile(join(project, 'tsconfig.json'), JSON.stringify(config));
      expect(await wrongs(tsc)).toBe('');
    },
    LONG_MS,
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
    LONG_MS,
  );

  test(
    'its Host for tests runs where its dependencies are installed, and has types',
    async () => {
      const place = join(project, 'node_modules/agent-runtime-host');
      await symlink(join(ROOT, 'node_modules'), join(place, 'node_modules'));
      await symlink(join(ROOT, 'node_modules/@types/node'), join(project, 'node_modules/@types/node'));
      await symlink(join(ROOT, 'node_modules/undici-types'), join(project, 'node_modules/undici-types'));
      await writeFile(join(project, 'memory.ts'), MEMORY);
      const compilerOptions = { strict: true, noEmit: true, types: ['node'], target: 'es2024', module: 'nodenext' };
      await writeFile(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['memory.ts'] }));
      for (const compiler of ['typescript', 'older-typescript']) {
        const tsc = join(ROOT, 'node_modules', compiler, 'bin/tsc');
        expect(await wrongs(tsc)).toBe('');
      }
      const { stdout } = await run(process.execPath, ['memory.ts'], { cwd: project });
      expect(stdout).toBe('step 0\n0\n');
    },
    2 * LONG_MS,
  );

  test(
    'its hook renders on a server with the React of the project',
    async () => {
      const page = REACT.replaceAll(/^import type .*$/gm, '').replaceAll(
        /: (\{ id: string \}|ReactNode|UseSession)/g,
        '',
      );
      const render = "import { renderToString } from 'react-dom/server';\nimport { Page } from './page.mjs';\n";
      await writeFile(join(project, 'page.mjs'), page);
      await writeFile(
        join(project, 'render.mjs'),
        `${render}console.log(renderToString(createElement(Page, { id: 's' })));\nimport { createElement } from 'react';\n`,
      );
      const { stdout } = await run(process.execPath, ['render.mjs'], { cwd: project });
      expect(stdout).toBe('<p></p>\n');
    },
    LONG_MS,
  );
});
