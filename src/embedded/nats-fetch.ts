import { createHash } from 'node:crypto';
import { access, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { debianMainArchive, readAptSources } from './apt-sources.ts';
import { bareEnvironment, runCommand } from './run-command.ts';

/** A server that a source has put into the work directory, or the reason why it could not. */
export type Fetched = { readonly binary: string } | { readonly failure: string };

/** Where a source may write, and where it says what it is doing. */
export interface FetchContext {
  readonly workDirectory: string;
  readonly report: (line: string) => void;
}

const RELEASE = '2.14.5';
/**
 * SHA-256 of the release archives, as the maintainers state them in their container recipe (nats-io/nats-docker, the
 * commit "Releases v2.14.5"). A platform without a digest there is not downloaded.
 */
const RELEASE_DIGESTS: ReadonlyMap<string, string> = new Map([
  ['linux-amd64', '5e3b603d47c447bda1f77f9ac16dbf91c90aac4ff3681f8fbbc7201e4ed99355'],
  ['linux-arm64', '673a98d3faa79dde3f9ebf16d6dfac36a5f694e7ad2015e4954dd7939c85cd4c'],
]);
const ANSWER_MS = 10_000;
const DOWNLOAD_MS = 120_000;
const DEBIAN_KEYRINGS = [
  '/usr/share/keyrings/debian-archive-keyring.gpg',
  '/usr/share/keyrings/debian-archive-keyring.pgp',
];

/** The official release archive, taken only with the pinned digest. An unreachable site costs at most 10 s. */
export async function fetchRelease(context: FetchContext): Promise<Fetched> {
  const platform = `${process.platform}-${process.arch === 'x64' ? 'amd64' : process.arch}`;
  const digest = RELEASE_DIGESTS.get(platform);
  if (digest === undefined) return { failure: `no pinned digest for ${platform}` };
  const name = `nats-server-v${RELEASE}-${platform}`;
  const url = `https://github.com/nats-io/nats-server/releases/download/v${RELEASE}/${name}.tar.gz`;
  context.report(`Fetching nats-server ${RELEASE} from its official release`);
  const bytes = await download(url);
  if (typeof bytes === 'string') return { failure: bytes };
  const found = createHash('sha256').update(bytes).digest('hex');
  if (found !== digest) return { failure: `the archive's SHA-256 is ${found}, expected ${digest}` };
  const archive = join(context.workDirectory, `${name}.tar.gz`);
  await writeFile(archive, bytes);
  const unpacked = await runCommand('tar', ['-xzf', archive, '-C', context.workDirectory], { timeoutMs: 60_000 });
  if (unpacked.failure !== undefined) return { failure: `tar: ${unpacked.failure}` };
  return { binary: join(context.workDirectory, name, 'nats-server') };
}

/** The bytes, or in words why there are none. */
async function download(url: string): Promise<Buffer | string> {
  const abort = new AbortController();
  const reason = (text: string) => () => abort.abort(new Error(text));
  const answer = setTimeout(reason(`no answer within ${ANSWER_MS / 1000} s`), ANSWER_MS);
  const end = setTimeout(reason(`not complete within ${DOWNLOAD_MS / 1000} s`), DOWNLOAD_MS);
  try {
    const response = await fetch(url, { signal: abort.signal });
    clearTimeout(answer);
    if (!response.ok) return `HTTP ${response.status}`;
    return Buffer.from(await response.arrayBuffer());
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    return cause instanceof Error ? cause.message : String(cause);
  } finally {
    clearTimeout(answer);
    clearTimeout(end);
  }
}

/**
 * The newest package of the Debian archive that this machine's apt is configured for, from its `sid` suite. The lists
 * and the cache are private and nothing is installed; apt checks the archive's signature as it does for the system.
 */
export async function fetchFromDebian(context: FetchContext): Promise<Fetched> {
  const archive = debianMainArchive(await readAptSources());
  if (archive === undefined) return { failure: 'apt is not configured for a Debian archive' };
  const keyring = await firstPresent([
    ...(archive.signedBy === undefined ? [] : [archive.signedBy]),
    ...DEBIAN_KEYRINGS,
  ]);
  if (keyring === undefined) return { failure: "Debian's archive keyring is not on this machine" };
  const root = join(context.workDirectory, 'apt');
  await mkdir(join(root, 'state/lists/partial'), { recursive: true });
  await mkdir(join(root, 'cache/archives/partial'), { recursive: true });
  const list = join(root, 'sid.list');
  await writeFile(list, `deb [signed-by=${keyring}] ${archive.uri} sid main\n`);
  const apt = (...command: string[]) =>
    runCommand('apt-get', [...aptOptions(root, list), ...command], {
      timeoutMs: DOWNLOAD_MS,
      cwd: root,
      env: bareEnvironment(['http_proxy', 'https_proxy', 'no_proxy']),
    });
  context.report('Reading the package list of the Debian archive');
  const updated = await apt('update');
  if (updated.failure !== undefined) return { failure: `apt-get update: ${updated.failure}` };
  context.report('Fetching the nats-server package');
  const downloaded = await apt('download', 'nats-server');
  if (downloaded.failure !== undefined) return { failure: `apt-get download: ${downloaded.failure}` };
  const packageName = (await readdir(root)).find((name) => name.endsWith('.deb'));
  if (packageName === undefined) return { failure: 'apt-get download left no package' };
  const target = join(root, 'unpacked');
  const unpacked = await runCommand('dpkg', ['-x', join(root, packageName), target], { timeoutMs: 60_000 });
  if (unpacked.failure !== undefined) return { failure: `dpkg: ${unpacked.failure}` };
  return { binary: join(target, 'usr/sbin/nats-server') };
}

function aptOptions(root: string, list: string): string[] {
  const settings = [
    `Dir::Etc::sourcelist=${list}`,
    'Dir::Etc::sourceparts=-',
    `Dir::State=${join(root, 'state')}`,
    `Dir::Cache=${join(root, 'cache')}`,
    'Acquire::Languages=none',
    'Acquire::Retries=1',
    'Acquire::http::Timeout=15',
    'Acquire::https::Timeout=15',
    // The private directory is this user's alone, so apt's own download account could not read it.
    ...(process.getuid?.() === 0 ? ['APT::Sandbox::User=root'] : []),
  ];
  return ['-qq', ...settings.flatMap((setting) => ['-o', setting])];
}

async function firstPresent(paths: readonly string[]): Promise<string | undefined> {
  for (const path of paths) {
    const present = await access(path).then(
      () => true,
      () => false,
    );
    if (present) return path;
  }
  return undefined;
}
