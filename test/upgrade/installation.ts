import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readlink, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { Balancer } from '../support/cluster/balancer.ts';
import { freePort } from '../support/free-port.ts';
import { startHost } from '../support/host.ts';
import type { Host } from '../support/host.ts';
import { requireLastRelease } from '../support/last-release.ts';
import { TestNats } from '../support/nats.ts';
import { PROGRAM } from '../support/program.ts';
import { TestDatabase, TestPostgres } from '../support/postgres.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const START_MS = 120_000;
/** Short, so that work can take longer than a lease, and long enough for an executor that stands still for seconds. */
export const LEASE_SECONDS = 10;

export type Version = 'released' | 'this';

/** A node on one address, of one version at a time. */
export interface UpgradedNode {
  readonly url: string;
  readonly host: () => Host;
  /** Stops it, and starts the other version on the same data directory and address. */
  readonly become: (version: Version) => Promise<void>;
}

/** Two nodes with servers of their own and a balancer before them, out of the last release at first. */
export interface Installation extends AsyncDisposable {
  readonly nodes: readonly [UpgradedNode, UpgradedNode];
  readonly balancer: Balancer;
  readonly adminKey: string;
  readonly database: TestDatabase;
  /** Of a program beside the nodes. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Takes the last release out of this repository's history. @throws when the history does not go back so far */
async function released(directory: string): Promise<string> {
  const commit = requireLastRelease();
  const root = join(directory, 'released');
  await mkdir(root);
  const archive = execFileSync('git', ['archive', '--format=tar', commit], { cwd: ROOT, maxBuffer: 512 * 1024 * 1024 });
  execFileSync('tar', ['-x', '-C', root], { input: archive });
  const modules = join(ROOT, 'node_modules');
  await symlink(await readlink(modules).catch(() => modules), join(root, 'node_modules'));
  return join(root, 'src/main.ts');
}

export async function installation(): Promise<Installation> {
  await using disposables = new AsyncDisposableStack();
  const directory = await mkdtemp(join(tmpdir(), 'agent-host-upgrade-'));
  disposables.defer(async () => await rm(directory, { recursive: true, force: true, maxRetries: 5 }));
  const programs = { released: await released(directory), this: PROGRAM };
  const nats = disposables.use(await TestNats.start());
  const postgres = disposables.use(await TestPostgres.start());
  const database = disposables.use(new TestDatabase(await postgres.empty()));
  const environment = {
    ...(await secrets(directory)),
    NATS_URL: nats.url,
    DATABASE_URL: database.url,
    AGENT_HOST_LEASE_SECONDS: String(LEASE_SECONDS),
  };
  const first = disposables.use(await startNode(join(directory, 'a'), environment, programs));
  const second = disposables.use(await startNode(join(directory, 'b'), environment, programs));
  const nodes = [first, second] as const;
  const balancer = disposables.use(await Balancer.start({ commands: nodes, reads: nodes }));
  const kept = disposables.move();
  return {
    ...{ nodes, balancer, database, environment, adminKey: environment.AGENT_HOST_ADMIN_KEY },
    [Symbol.asyncDispose]: async () => await kept.disposeAsync(),
  };
}

async function secrets(directory: string) {
  const [kek, objects] = [join(directory, 'kek'), join(directory, 'objects')];
  await mkdir(objects);
  await writeFile(kek, randomBytes(32).toString('base64'), { mode: 0o600 });
  const adminKey = randomBytes(24).toString('hex');
  return { AGENT_HOST_KEK_FILE: kek, AGENT_HOST_OBJECTS_DIR: objects, AGENT_HOST_ADMIN_KEY: adminKey };
}

async function startNode(
  dataDir: string,
  environment: Readonly<Record<string, string>>,
  programs: Readonly<Record<Version, string>>,
): Promise<UpgradedNode & AsyncDisposable> {
  await mkdir(dataDir);
  const listen = `127.0.0.1:${await freePort()}`;
  const env = { ...environment, AGENT_HOST_LISTEN: listen, AGENT_HOST_DRAIN_SECONDS: '1' };
  const start = async (version: Version): Promise<Host> =>
    await startHost({
      ...{ env, dataDir, program: programs[version], startMs: START_MS },
      // Who has asked for what is counted by node, and each process is one.
      singleProcess: true,
    });
  let host = await start('released');
  return {
    url: `http://${listen}`,
    host: () => host,
    become: async (version) => {
      await host.stop();
      host = await start(version);
    },
    [Symbol.asyncDispose]: async () => await host[Symbol.asyncDispose](),
  };
}
