import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { createContext, runInContext } from 'node:vm';
import { build } from 'rolldown';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { AdminClient } from '../support/client.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { ROOT } from '../tidy/tree.ts';

const run = promisify(execFile);
const SOON_MS = 60_000;
/** What browsers, workers, Bun and Deno have; nothing of Node is among it. */
const GLOBALS = [
  ...['AbortController', 'AbortSignal', 'Blob', 'DOMException', 'Response', 'TextDecoder', 'TextEncoder', 'URL'],
  ...['ReadableStream', 'URLSearchParams', 'clearTimeout', 'crypto', 'fetch', 'setTimeout'],
] as const;

let host: Host;
let folder: string;
/** The client, and a conversation over it: sends, reads a stream, asks, uploads, downloads. Ends with what was said. */
let script: string;

beforeAll(async () => {
  host = await startHost();
  const { tenantId, key } = (await new AdminClient(host).createTenant()).credentials;
  folder = await mkdtemp(join(tmpdir(), 'agent-host-runtimes-'));
  const input = join(ROOT, 'src/client/client.ts');
  const { output } = await build({ input, write: false, logLevel: 'silent', output: { format: 'iife', name: 'host' } });
  const options = JSON.stringify({ url: host.url, tenant: tenantId, key });
  script = `${output[0].code}
async function talk() {
  const client = host.createClient(${options});
  await client.agents.save('agent', { instructions: 'Answer.', model: { provider: 'fixture', model: 'any' } });
  const session = await client.sessions.open({ agentId: 'agent' });
  await session.send('Hello');
  let said = '';
  for await (const event of session.events()) {
    if (event.type === 'message.assistant') said += event.payload.text;
    if (event.type === 'turn.completed') break;
  }
  said += ', ' + await session.ask('again');
  const { artifact } = await client.artifacts.upload('a.txt', new Blob(['bytes']).stream(), { sessionId: session.id });
  const { stream } = await client.artifacts.download(artifact.artifactId);
  said += ', ' + await new Response(stream).text();
  const refused = await client.session('absent').get().catch((error) => error);
  return said + ', ' + refused.code;
}
`;
});

afterAll(async () => {
  await host[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

const SAID = 'echo: Hello, echo: again, bytes, not_found';

test(
  'the client talks where there is nothing but fetch, streams and timers',
  async () => {
    const globals = Object.fromEntries(GLOBALS.map((name) => [name, globalThis[name]]));
    const context = createContext({ ...globals });
    expect(runInContext('typeof process + typeof Buffer + typeof require + typeof global', context)).toBe(
      'undefined'.repeat(4),
    );
    expect(await runInContext(`${script}\ntalk()`, context)).toBe(SAID);
  },
  SOON_MS,
);

/** Where they are installed; with npm they are the packages `bun` and `deno`. */
const RUNTIMES = (
  [
    ['bun', ['run']],
    ['deno', ['run', '--allow-net']],
  ] as const
).filter(([name]) => spawnSync(name, ['--version']).status === 0);

test.each(RUNTIMES)(
  'the client talks under %s',
  async (name, args) => {
    const file = join(folder, `${name}.mjs`);
    await writeFile(file, `${script}\nconsole.log(await talk());\n`);
    const { stdout } = await run(name, [...args, file], { cwd: folder });
    expect(stdout).toBe(`${SAID}\n`);
  },
  SOON_MS,
);
