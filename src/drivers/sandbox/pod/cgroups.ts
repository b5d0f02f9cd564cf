import { readlinkSync } from 'node:fs';
import { mkdir, readdir, readFile, rmdir, stat, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { delay } from '../../../lib/backoff.ts';
import { hasCode } from '../../../lib/files.ts';
import { processIdentity } from '../../../lib/process-identity.ts';

/** What a command may use with all that it starts. */
export interface CgroupLimits {
  readonly memoryBytes: number;
  readonly processes: number;
  readonly cpus: number;
}

/** A group of processes with limits, for one command. */
export interface Cgroup {
  /** Files to which a process writes its number to join. */
  readonly joins: readonly string[];
  /** CPU time of all its processes, those that have ended included, ms. */
  cpuMs(): Promise<number>;
  /** How many processes were ended because the group was out of memory. */
  outOfMemory(): Promise<number>;
  /** Ends what is left in it, and removes it. */
  remove(): Promise<void>;
}

/** Where the kernel's interface is; different in tests. */
export interface CgroupFiles {
  readonly mountinfo: string;
  readonly own: string;
}

const FILES: CgroupFiles = { mountinfo: '/proc/self/mountinfo', own: '/proc/self/cgroup' };
/** Names of groups: the namespace in which the number of their Host means it, the number, which process that was, and a count. */
const NAMED = /^agent-host-(\d+)-(\d+)-([0-9a-z]+-\d+)-\d+$/;
/** An empty group of a Host in another namespace may be about to be used for this long, ms. */
const FOREIGN_MS = 3_600_000;
/** For the processes of a group to end after they were killed, ms. */
const ENDING_MS = 10_000;
const PERIOD_US = 100_000;
/** The lowest quota that the kernel takes. */
const QUOTA_MIN_US = 1_000;

/** A controller of version 1, or null for version 2, and the directory in which groups can be made. */
type Places = { readonly version: 2; readonly directory: string } | { readonly version: 1; readonly of: V1 };
type V1 = Readonly<Record<(typeof V1_CONTROLLERS)[number], string>>;
const V1_CONTROLLERS = ['memory', 'pids', 'cpu', 'cpuacct'] as const;

/** Makes groups below the Host's own, where the system delegates that to it. */
export class Cgroups {
  readonly #places: Places;
  /** Which process this is, in the names of its groups. */
  readonly #host = `${pidNamespace()}-${process.pid}-${processIdentity(process.pid) ?? 'unknown-0'}`;
  #made = 0;

  private constructor(places: Places) {
    this.#places = places;
  }

  /** Null: this process may not make groups that limit memory and processes. What dead Hosts left is removed. */
  static async open(files: CgroupFiles = FILES): Promise<Cgroups | null> {
    const [mounts, own] = await Promise.all([text(files.mountinfo), text(files.own)]);
    const places = (await versionTwo(mounts, own)) ?? (await versionOne(mounts, own));
    if (places === null) return null;
    const cgroups = new Cgroups(places);
    for (const directory of cgroups.#directories) await removeStale(directory);
    try {
      const probe = await cgroups.create({ memoryBytes: 16_777_216, processes: 16, cpus: 1 });
      await probe.remove();
      return cgroups;
    } catch {
      return null;
    }
  }

  get #directories(): readonly string[] {
    return this.#places.version === 2 ? [this.#places.directory] : Object.values(this.#places.of);
  }

  /** @throws what the system says when a limit cannot be set */
  async create(limits: CgroupLimits): Promise<Cgroup> {
    const name = `agent-host-${this.#host}-${++this.#made}`;
    const made: string[] = [];
    try {
      for (const parent of new Set(this.#directories)) {
        const directory = join(parent, name);
        await mkdir(directory);
        made.push(directory);
      }
      return this.#places.version === 2
        ? await limitTwo(join(this.#places.directory, name), limits)
        : await limitOne(named(this.#places.of, name), limits);
    } catch (error) {
      for (const directory of made) await rmdir(directory).catch(() => undefined);
      throw error;
    }
  }
}

function named(of: V1, name: string): V1 {
  const [memory, pids, cpu, cpuacct] = [of.memory, of.pids, of.cpu, of.cpuacct].map((parent) => join(parent, name));
  return { memory: memory ?? '', pids: pids ?? '', cpu: cpu ?? '', cpuacct: cpuacct ?? '' };
}

async function limitTwo(directory: string, { memoryBytes, processes, cpus }: CgroupLimits): Promise<Cgroup> {
  const set = async (file: string, value: string) => await writeFile(join(directory, file), value);
  await set('memory.max', String(memoryBytes));
  // Not there without swap.
  await set('memory.swap.max', '0').catch(() => undefined);
  await set('pids.max', String(processes));
  // Not there when the controller is not delegated: then a command has what others leave it.
  await set('cpu.max', `${quotaUs(cpus)} ${PERIOD_US}`).catch(() => undefined);
  const joins = [join(directory, 'cgroup.procs')];
  return {
    joins,
    cpuMs: async () => Math.round(figure(await text(join(directory, 'cpu.stat')), 'usage_usec') / 1_000),
    outOfMemory: async () => figure(await text(join(directory, 'memory.events')), 'oom_kill'),
    remove: async () => await removeGroups(joins),
  };
}

async function limitOne(of: V1, { memoryBytes, processes, cpus }: CgroupLimits): Promise<Cgroup> {
  await writeFile(join(of.memory, 'memory.limit_in_bytes'), String(memoryBytes));
  await writeFile(join(of.memory, 'memory.memsw.limit_in_bytes'), String(memoryBytes)).catch(() => undefined);
  await writeFile(join(of.pids, 'pids.max'), String(processes));
  await writeFile(join(of.cpu, 'cpu.cfs_period_us'), String(PERIOD_US)).catch(() => undefined);
  await writeFile(join(of.cpu, 'cpu.cfs_quota_us'), String(quotaUs(cpus))).catch(() => undefined);
  const joins = [...new Set(Object.values(of))].map((directory) => join(directory, 'cgroup.procs'));
  return {
    joins,
    cpuMs: async () => Math.round(Number(await text(join(of.cpuacct, 'cpuacct.usage'))) / 1_000_000),
    outOfMemory: async () => figure(await text(join(of.memory, 'memory.oom_control')), 'oom_kill'),
    remove: async () => await removeGroups(joins),
  };
}

function quotaUs(cpus: number): number {
  return Math.max(QUOTA_MIN_US, Math.round(cpus * PERIOD_US));
}

/** The number after a name, of lines such as `usage_usec 123`. */
function figure(lines: string, name: string): number {
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(lines)?.[1] ?? 0);
}

/** Kills until none is left: a process that starts others meanwhile is outrun by the limit of their number. */
async function removeGroups(joins: readonly string[]): Promise<void> {
  const deadline = performance.now() + ENDING_MS;
  for (const file of joins) {
    for (;;) {
      await writeFile(join(dirname(file), 'cgroup.kill'), '1', { flag: 'r+' }).catch(() => undefined);
      for (const pid of members(await text(file))) end(pid);
      const isGone = await rmdir(dirname(file)).then(
        () => true,
        (error: unknown) => hasCode(error, 'ENOENT'),
      );
      if (isGone || performance.now() > deadline) break;
      await delay(5);
    }
  }
}

/** Processes that can be ended from here. One of another namespace is 0, which a system call takes for the Host's own group. */
export function members(procs: string): readonly number[] {
  return procs
    .split('\n')
    .map(Number)
    .filter((pid) => pid > 1);
}

function end(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It has ended meanwhile.
  }
}

/** Removes groups of Hosts that are gone, one with the number of this process among them: in a container numbers repeat. */
async function removeStale(directory: string): Promise<void> {
  const own = pidNamespace();
  for (const name of await readdir(directory).catch(() => [])) {
    const [, namespace, pid, identity] = NAMED.exec(name) ?? [];
    if (namespace === undefined) continue;
    const group = join(directory, name);
    if (namespace !== own) await removeForeign(group);
    else if (processIdentity(Number(pid)) !== identity) await removeGroups([join(group, 'cgroup.procs')]);
  }
}

/** Whether its Host is there cannot be seen from here; a group with processes is not removed by this. */
async function removeForeign(group: string): Promise<void> {
  const found = await stat(group).catch(() => null);
  if (found !== null && Date.now() - found.ctimeMs > FOREIGN_MS) await rmdir(group).catch(() => undefined);
}

function pidNamespace(): string {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '0';
  } catch {
    return '0';
  }
}

/**
 * The Host's own group cannot both hold processes and limit groups below it, so groups are made beside it, where its
 * parent is delegated (`DelegateSubgroup=` of systemd), or below it, where that works.
 */
async function versionTwo(mounts: string, own: string): Promise<Places | null> {
  const path = /^0::(.*)$/m.exec(own)?.[1];
  const mount = mountsOf(mounts).find(({ type }) => type === 'cgroup2');
  if (path === undefined || mount === undefined) return null;
  const self = within(mount, path);
  const candidates = self === mount.at ? [self] : [dirname(self), self];
  for (const directory of candidates) {
    const subtree = join(directory, 'cgroup.subtree_control');
    const isOn = async () => ['memory', 'pids'].every((name) => enabled.includes(name));
    let enabled = (await text(subtree)).trim().split(' ');
    if (!(await isOn())) {
      await writeFile(subtree, '+memory +pids').catch(() => undefined);
      await writeFile(subtree, '+cpu').catch(() => undefined);
      enabled = (await text(subtree)).trim().split(' ');
    }
    if (await isOn()) return { version: 2, directory };
  }
  return null;
}

async function versionOne(mounts: string, own: string): Promise<Places | null> {
  const found = V1_CONTROLLERS.map((controller) => {
    const line = own.split('\n').find((each) => each.split(':')[1]?.split(',').includes(controller));
    const mount = mountsOf(mounts).find(({ type, options }) => type === 'cgroup' && options.includes(controller));
    const path = line?.split(':').slice(2).join(':');
    return mount === undefined || path === undefined ? null : within(mount, path);
  });
  const [memory, pids, cpu, cpuacct] = found;
  if (!memory || !pids || !cpu || !cpuacct) return null;
  return await Promise.resolve({ version: 1, of: { memory, pids, cpu, cpuacct } });
}

interface Mount {
  /** What of the hierarchy is mounted, and where. */
  readonly root: string;
  readonly at: string;
  readonly type: string;
  readonly options: readonly string[];
}

function mountsOf(mountinfo: string): Mount[] {
  return mountinfo.split('\n').flatMap((line) => {
    const [before = '', after = ''] = line.split(' - ');
    const [, , , root, at] = before.split(' ');
    const [type, , options = ''] = after.split(' ');
    if (root === undefined || at === undefined || type === undefined) return [];
    return [{ root, at, type, options: options.split(',') }];
  });
}

function within({ root, at }: Mount, path: string): string {
  const below = relative(root, path);
  return below === '' || below.startsWith('..') ? at : join(at, below);
}

async function text(file: string): Promise<string> {
  return await readFile(file, 'utf8').catch(() => '');
}
