import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ROOT } from './tree.ts';

/**
 * The import laws can fail: a tree that breaks each of them once is planted in a temporary directory and checked there.
 * A law nobody has seen fail may be a pattern that matches nothing.
 */
const PACKAGES = ['zod', 'slonik', 'pg', 'fastify', '@nats-io/jetstream', 'undici'];
const PEERS = ['react'];
const DEV_PACKAGES = ['vitest'];

/** file → what it imports → the law that must object. */
const VIOLATIONS: readonly (readonly [file: string, specifier: string, law: string])[] = [
  ['src/domain/session/a.ts', 'node:crypto', 'domain-is-pure'],
  ['src/domain/session/b.ts', '../../lib/clock.ts', 'domain-is-pure'],
  ['src/domain/session/c.ts', 'slonik', 'domain-is-pure'],
  ['src/domain/turn/a.ts', '../session/decide.ts', 'turn-under-session'],
  ['src/lib/a.ts', '../streams/event-store.ts', 'lib-imports'],
  ['src/streams/a.ts', '../projections/sessions/queries.ts', 'streams-imports'],
  ['src/drivers/model/a.ts', '../../streams/event-store.ts', 'drivers-imports'],
  ['src/drivers/model/b.ts', '../../domain/session/decide.ts', 'drivers-take-domain-types-only'],
  ['src/drivers/model/c.ts', '../objects/directory.ts', 'drivers-apart'],
  ['src/auth/a.ts', '../commands/handle.ts', 'auth-imports'],
  ['src/commands/a.ts', '../projections/sessions/queries.ts', 'commands-imports'],
  ['src/commands/b.ts', '../auth/caller.ts', 'commands-take-auth-types-only'],
  ['src/projections/a.ts', '../commands/handle.ts', 'projections-imports'],
  ['src/engine/sql.ts', 'slonik', 'sql-in-projections-only'],
  ['src/engine/a.ts', '../projections/sessions/projection.ts', 'engine-imports'],
  ['src/engine/b.ts', '../streams/jetstream/store.ts', 'log-adapters-by-app-and-cli-only'],
  ['src/engine/c.ts', '../drivers/objects/directory.ts', 'driver-implementations-by-app-and-cli-only'],
  ['src/http/a.ts', '../engine/worker.ts', 'http-imports'],
  ['src/http/b.ts', '../drivers/objects/port.ts', 'http-imports'],
  ['src/http/c.ts', 'pg', 'sql-in-projections-only'],
  ['src/http/d.ts', '../streams/jetstream/store.ts', 'log-adapters-by-app-and-cli-only'],
  ['src/http/e.ts', '../domain/session/decide.ts', 'http-takes-no-decisions'],
  ['src/http/f.ts', '@nats-io/jetstream', 'nats-in-jetstream-only'],
  ['src/engine/d.ts', 'fastify', 'fastify-in-http-only'],
  ['src/engine/g.ts', 'node:net', 'connections-by-the-egress-client-only'],
  ['src/drivers/mcp/a.ts', 'undici', 'connections-by-the-egress-client-only'],
  ['src/drivers/oauth/a.ts', 'node:https', 'connections-by-the-egress-client-only'],
  ['src/lib/guarded-lookup.ts', 'undici', 'large-libraries-late'],
  ['src/app/h.ts', '../drivers/objects/s3.ts', 'large-libraries-late'],
  ['src/cli/c.ts', '../drivers/mcp/driver.ts', 'large-libraries-late'],
  ['src/engine/e.ts', 'node:process', 'process-at-the-edge'],
  ['src/http/g.ts', '../app/host.ts', 'app-by-cli-and-main-only'],
  ['src/http/h.ts', '../cli/backup.ts', 'cli-by-main-only'],
  ['src/http/i.ts', '../archive/manifest.ts', 'archive-by-cli-only'],
  ['src/http/j.ts', '../embedded/nats.ts', 'embedded-by-app-and-cli-only'],
  ['src/engine/f.ts', '../streams/memory/streams.ts', 'log-adapters-by-app-and-cli-only'],
  ['src/in-memory/a.ts', '../cli/backup.ts', 'in-memory-imports'],
  ['src/in-memory/b.ts', '../engine/worker.ts', 'in-memory-imports'],
  ['src/app/g.ts', '../in-memory/index.ts', 'in-memory-stands-apart'],
  ['src/embedded/a.ts', '../streams/event-store.ts', 'embedded-imports'],
  ['src/embedded/b.ts', '../app/host.ts', 'app-by-cli-and-main-only'],
  ['src/embedded/c.ts', 'slonik', 'sql-in-projections-only'],
  ['src/archive/a.ts', '../projections/sessions/queries.ts', 'archive-imports'],
  ['src/archive/b.ts', '../app/host.ts', 'app-by-cli-and-main-only'],
  ['src/archive/c.ts', '../streams/jetstream/store.ts', 'log-adapters-by-app-and-cli-only'],
  ['src/archive/d.ts', '../embedded/nats.ts', 'embedded-by-app-and-cli-only'],
  ['src/client/a.ts', 'node:crypto', 'client-stands-alone'],
  ['src/client/b.ts', '../lib/clock.ts', 'client-stands-alone'],
  ['src/react/a.ts', 'node:crypto', 'react-imports'],
  ['src/react/b.ts', '../lib/clock.ts', 'react-imports'],
  ['src/console/app/a.ts', '../../lib/clock.ts', 'console-app-imports'],
  ['src/console/app/b.tsx', 'node:crypto', 'console-app-imports'],
  ['src/console/server/a.ts', '../app/main.tsx', 'console-app-by-nobody'],
  ['src/console/server/b.ts', '../../http/server.ts', 'console-server-imports'],
  ['src/http/k.ts', '../console/server/door.ts', 'console-server-by-app-and-cli-only'],
  ['src/cli/a.ts', '../engine/worker.ts', 'cli-imports'],
  ['src/cli/b.ts', '../http/server.ts', 'cli-imports'],
  ['src/app/e.ts', '../cli/backup.ts', 'app-imports'],
  ['src/app/f.ts', '../archive/manifest.ts', 'app-imports'],
  ['src/main.ts', './engine/worker.ts', 'main-builds-roots-only'],
  ['src/app/a.ts', '../../test/support/x.ts', 'src-not-to-tests'],
  ['src/app/b.ts', 'vitest', 'no-dev-dependencies-in-src'],
  ['src/app/c.ts', 'not-in-package-json', 'no-undeclared-dependencies'],
  ['src/app/d.ts', './no-such-file.ts', 'not-to-unresolvable'],
  ['src/app/round.ts', './trip.ts', 'no-circular'],
];

/** Imports the laws allow; none of these files may be named in the report. */
const ALLOWED: readonly (readonly [file: string, specifier: string])[] = [
  ['src/domain/session/decide.ts', 'zod'],
  ['src/lib/clock.ts', 'node:timers'],
  ['src/app/metrics/server.ts', 'node:http'],
  ['src/streams/event-store.ts', '../lib/clock.ts'],
  ['src/streams/jetstream/store.ts', '@nats-io/jetstream'],
  ['src/drivers/objects/port.ts', '../../lib/clock.ts'],
  ['src/drivers/objects/directory.ts', './port.ts'],
  ['src/projections/sessions/queries.ts', 'slonik'],
  ['src/projections/sessions/projection.ts', '../../streams/event-store.ts'],
  ['src/auth/caller.ts', '../projections/sessions/queries.ts'],
  ['src/commands/handle.ts', '../domain/session/decide.ts'],
  ['src/engine/worker.ts', '../drivers/objects/port.ts'],
  ['src/http/server.ts', 'fastify'],
  ['src/app/host.ts', '../streams/jetstream/store.ts'],
  ['src/streams/memory/streams.ts', '../../lib/clock.ts'],
  ['src/in-memory/index.ts', '../app/host.ts'],
  ['src/in-memory/host.ts', '../streams/memory/streams.ts'],
  ['src/app/servers.ts', '../embedded/nats.ts'],
  ['src/embedded/nats.ts', '../lib/clock.ts'],
  ['src/archive/manifest.ts', '../streams/event-store.ts'],
  ['src/cli/backup.ts', '../archive/manifest.ts'],
  ['src/cli/restore.ts', '../streams/jetstream/store.ts'],
  ['src/cli/verify.ts', '../app/host.ts'],
  ['src/react/use-session.ts', 'react'],
  ['src/console/app/main.tsx', 'vitest'],
  ['src/console/app/page.tsx', './main.tsx'],
  ['src/console/server/door.ts', 'node:http'],
  ['src/app/console.ts', '../console/server/door.ts'],
  ['src/app/trip.ts', './round.ts'],
  ['src/domain/session/scene.test.ts', '../../lib/clock.ts'],
];
const CIRCLE = new Set(['src/app/trip.ts']);

let root: string;

const put = (file: string, text: string) => {
  mkdirSync(path.dirname(path.join(root, file)), { recursive: true });
  writeFileSync(path.join(root, file), text);
};
const putPackage = (name: string) => {
  put(`node_modules/${name}/package.json`, JSON.stringify({ name, version: '1.0.0', main: 'index.js' }));
  put(`node_modules/${name}/index.js`, 'module.exports = {};\n');
};
const versions = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, '1.0.0']));

beforeAll(() => {
  root = mkdtempSync(path.join(os.tmpdir(), 'agent-host-layers-'));
  const manifest = {
    type: 'module',
    dependencies: versions(PACKAGES),
    devDependencies: versions([...DEV_PACKAGES, ...PEERS]),
  };
  put('package.json', JSON.stringify({ ...manifest, peerDependencies: versions(PEERS) }));
  for (const name of [...PACKAGES, ...DEV_PACKAGES, ...PEERS, 'not-in-package-json']) putPackage(name);
  put('test/support/x.ts', 'export const x = 1;\n');
  put('src/lib/alone.ts', 'export const alone = 1;\n');
  put('src/drivers/objects/s3.ts', 'export const x = 1;\n');
  put('src/drivers/mcp/driver.ts', 'export const x = 1;\n');
  put('src/lib/egress-client.ts', "export const fetch = async () => await import('undici');\n");
  put('src/http/types.ts', "import type { x } from '../domain/session/decide.ts';\nexport type X = typeof x;\n");
  for (const [file, specifier] of [...ALLOWED, ...VIOLATIONS]) {
    put(file, `import { x as y } from '${specifier}';\nexport const x = y;\n`);
  }
});

afterAll(() => rmSync(root, { recursive: true, force: true }));

describe('the import laws', () => {
  let report = '';

  beforeAll(() => {
    const run = spawnSync(process.execPath, [path.join(ROOT, 'scripts/layers.mjs'), root], { encoding: 'utf8' });
    report = run.stdout + run.stderr;
    if (run.status !== 1 || !/^\d+ modules, \d+ violations$/m.test(report)) throw new Error(`no report:\n${report}`);
  });

  test.each(VIOLATIONS)('%s → %s breaks %s', (file, _specifier, law) => {
    expect(report).toContain(`${law}: ${file}`);
  });

  test('a module that nobody imports breaks no-orphans', () => {
    expect(report).toContain('no-orphans: src/lib/alone.ts');
  });

  test.each(ALLOWED.filter(([file]) => !CIRCLE.has(file)))('%s → %s is allowed', (file) => {
    expect(report.split('\n').filter((line) => line.includes(`: ${file}`))).toEqual([]);
  });

  test('a large library may be loaded when it is used', () => {
    expect(report).not.toContain(': src/lib/egress-client.ts');
  });

  test('http may take types from what decides', () => {
    expect(report).not.toContain(': src/http/types.ts');
  });

  test('the count guard has nothing to say about a tree that was seen', () => {
    expect(report).not.toContain('count guard');
  });
});

test('every law has been seen to fail here', async () => {
  const config: unknown = await import(path.join(ROOT, '.dependency-cruiser.cjs'));
  const { forbidden } = (config as { default: { forbidden: { name: string }[] } }).default;
  const planted = new Set([...VIOLATIONS.map(([, , law]) => law), 'no-orphans']);
  expect(forbidden.map(({ name }) => name).filter((name) => !planted.has(name))).toEqual([]);
});
