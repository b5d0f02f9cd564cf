import { existsSync, lstatSync, readlinkSync } from 'node:fs';
import { extname } from 'node:path';
import { WORKSPACE } from '../../../domain/sandbox/paths.ts';
import type { Command } from '../confinement.ts';
import { proxyVariables } from '../proxy.ts';

/** The programs of the system that a pod is made of. */
export interface PodPrograms {
  readonly bubblewrap: string;
  readonly bash: string;
  readonly env: string;
  readonly flock: string;
  readonly prlimit: string;
  /** Needed when a pod has a user of its own. */
  readonly setpriv: string | null;
}

/** Leads from a port inside of a pod to the socket of the Host's proxy. */
export interface PodBridge {
  readonly node: string;
  /** One file, which imports nothing of ours. */
  readonly program: string;
  readonly socket: string;
}

export interface PodCommand {
  readonly programs: PodPrograms;
  readonly script: string;
  /** The directory that is mounted as the workspace. */
  readonly workspace: string;
  /** A number of its own, when the Host is root; null: it is the Host's user in a user namespace. */
  readonly uid: number | null;
  readonly lock: string;
  readonly fence: { readonly hostEpoch: number; readonly epoch: number };
  /** Files to which the command's first process writes its number. */
  readonly joins: readonly string[];
  readonly memoryBytes: number;
  /** Whether something else bounds the memory of all processes together. */
  readonly isMemoryBounded: boolean;
  readonly storageBytes: number;
  readonly processes: number;
  readonly bridge: PodBridge | null;
}

/** Descriptors of the first process: the Host's end, what bubblewrap reports, the filter, and files of /etc. */
export const FD = { host: 3, status: 4, filter: 5, passwd: 6, group: 7, hosts: 8, lock: 9, options: 10 } as const;
/** How the first process ends when it cannot start: a newer pod has the volume, or its lock is not to be had. */
export const EXIT_FENCED = 98;
export const EXIT_LOCKED = 97;
/** The command has ended, and some of what it has written did not come. */
const EXIT_OUTPUT_LOST = 96;

const INNER_UID = 1_000;
/** Of a command in the pod when nothing else bounds memory: a process maps more than it uses. */
const MAPPED_BYTES = 671_088_640;
const OPEN_FILES = 4_096;
/** /tmp and /dev/shm, of the memory. */
const TMP_SHARE = 2;
const PAGE_BYTES = 4_096;
const BRIDGE_PORT = 3_128;
const BRIDGE = '/run/agent-host';

/**
 * Takes the lock of the volume, whose file says which group of processes has it and by which epochs: an older one is
 * killed, a newer one is not disturbed. A second process holds the lock too, and waits for the Host's end of descriptor 3:
 * when that closes without a word, the Host is gone, and the group is killed with all that it has started. The output
 * goes through pipes: what the Host reads from is a socket, which no command can open again as /dev/stdout. The end of what passes it
 * on says whether all of it was.
 */
const FIRST = `
for file in /proc/self/fd/*; do fd=\${file##*/}; [ "$fd" -le ${FD.options} ] || eval "exec $fd>&-"; done
lock=$1 host=$2 hold=$3 flock=$4 own=$5 joins=$6; shift 6
for ((; joins > 0; joins--)); do echo "$$" > "$1" || exit 1; shift; done
exec 9<>"$lock" || exit ${EXIT_LOCKED}
isNewer() { read -r group oldHost oldHold < "$lock" && (( oldHost > host || (oldHost == host && oldHold > hold) )); }
if ! "$flock" -n 9; then
  if isNewer; then exit ${EXIT_FENCED}; fi
  (( \${group:-0} > 1 )) && kill -s KILL -- "-$group"
  "$flock" -w 20 9 || exit ${EXIT_LOCKED}
fi
if isNewer; then exit ${EXIT_FENCED}; fi
echo "$$ $host $hold" > "$lock"
( { read -r line <&3 || kill -s KILL -- "-$$"; echo "0 $host $hold" > "$lock"; } >/dev/null 2>&1 </dev/null 4>&- 5<&- 6<&- 7<&- 8<&- 10<&- & )
exec 11>&2
run() { if [ -n "$own" ]; then chown "$own" /proc/self/fd/1 /proc/self/fd/2; fi; "$@"; }
{ run "$@" 3<&- 9<&- 2>&1 1>&12 11>&- 12>&- | cat 12>&- >&11; exit "\${PIPESTATUS[1]}"; } 12>&1 | cat
[ "\${PIPESTATUS[*]}" = "0 0" ] || exit ${EXIT_OUTPUT_LOST}
`;

/** A command, and what its bubblewrap reads from a descriptor of its own. */
export interface ConfinedCommand extends Command {
  readonly options: string;
}

/** The whole command of a pod, ready to be spawned as the leader of a group. */
export function podCommand(command: PodCommand): ConfinedCommand {
  const { programs, lock, fence, joins } = command;
  const epochs = [String(fence.hostEpoch), String(fence.epoch)];
  const own = command.uid === null ? '' : String(command.uid);
  const first = [lock, ...epochs, programs.flock, own, String(joins.length), ...joins];
  const inner = [...privileges(command), ...limits(command), programs.env, '-C', WORKSPACE];
  const bridge = command.bridge === null ? [] : bridgeCommand(command.bridge);
  const run = [...inner, ...bridge, programs.bash, '-c', command.script];
  return {
    file: programs.bash,
    // Inside of the pod, the first process shows its arguments to all: those that name the machine are not among them.
    args: ['--norc', '-c', FIRST, 'pod', ...first, programs.bubblewrap, '--args', String(FD.options), '--', ...run],
    options: confinement(command)
      .map((option) => `${option}\0`)
      .join(''),
  };
}

/** Size of each file system in memory of a pod; there are two, and what they hold counts as its memory. */
export function tmpBytes(memoryBytes: number): number {
  return Math.max(1_048_576, Math.floor(memoryBytes / TMP_SHARE / PAGE_BYTES) * PAGE_BYTES);
}

/** The number of the user inside of a pod. */
export function innerUid(uid: number | null): number {
  return uid ?? INNER_UID;
}

/** From root without capabilities to the pod's own user, for good. */
function privileges({ uid, programs }: PodCommand): string[] {
  if (uid === null) return [];
  const own = ['--reuid', String(uid), '--regid', String(uid), '--clear-groups'];
  return [programs.setpriv ?? 'setpriv', ...own, '--inh-caps=-all', '--bounding-set=-all', '--no-new-privs', '--'];
}

function limits({ programs, processes, storageBytes, isMemoryBounded, memoryBytes }: PodCommand): string[] {
  const both = (value: number) => `${value}:${value}`;
  return [
    programs.prlimit,
    ...['--core=0:0', `--nofile=${both(OPEN_FILES)}`, `--nproc=${both(processes)}`, `--fsize=${both(storageBytes)}`],
    ...(isMemoryBounded ? [] : [`--data=${both(memoryBytes + MAPPED_BYTES)}`]),
    '--',
  ];
}

/** A file system of the machine's programs, read-only, and the workspace; no network, and nothing else of the machine. */
function confinement(command: PodCommand): string[] {
  const { uid, workspace, memoryBytes, isMemoryBounded, bridge } = command;
  const tmp = (path: string) => ['--size', String(tmpBytes(memoryBytes)), '--perms', '1777', '--tmpfs', path];
  return [
    ...(uid === null ? userNamespace() : ['--cap-drop', 'ALL', ...kept(['SETUID', 'SETGID', 'SETPCAP'])]),
    ...['--unshare-ipc', '--unshare-pid', '--unshare-net', '--unshare-uts', '--unshare-cgroup-try'],
    ...['--die-with-parent', '--new-session', '--hostname', 'pod'],
    ...['--seccomp', String(FD.filter), '--json-status-fd', String(FD.status)],
    ...system(),
    ...['--perms', '0755', '--dir', '/etc', '--perms', '0755', '--dir', '/run'],
    ...['ssl', 'pki', 'pki/tls', 'pki/ca-trust'].flatMap((path) => ['--perms', '0755', '--dir', `/etc/${path}`]),
    ...ETC.flatMap((path) => ['--ro-bind-try', `/etc/${path}`, `/etc/${path}`]),
    ...(['passwd', 'group', 'hosts'] as const).flatMap((name) => [
      ...['--perms', '0644', '--ro-bind-data', String(FD[name]), `/etc/${name}`],
    ]),
    ...['--proc', '/proc', '--dev', '/dev', ...tmp('/dev/shm'), ...tmp('/tmp')],
    // It gives zeros as well, but cannot be mapped: a shared mapping of zeros is memory that cannot be counted.
    ...(isMemoryBounded ? [] : ['--dev-bind', '/dev/full', '/dev/zero']),
    ...['--remount-ro', '/dev'],
    ...['--bind', workspace, WORKSPACE],
    ...(bridge === null ? [] : bridged(bridge)),
    ...['--remount-ro', '/', '--chdir', '/', '--clearenv'],
    ...Object.entries(environment(bridge !== null)).flatMap(([name, value]) => ['--setenv', name, value]),
  ];
}

function userNamespace(): string[] {
  const inner = String(INNER_UID);
  return ['--unshare-user', '--uid', inner, '--gid', inner, '--cap-drop', 'ALL'];
}

function kept(capabilities: readonly string[]): string[] {
  return capabilities.flatMap((name) => ['--cap-add', `CAP_${name}`]);
}

/** What programs need of the machine's configuration: nothing of it is secret, or about the Host. */
const ETC = [
  ...['alternatives', 'ld.so.cache', 'ld.so.conf', 'ld.so.conf.d', 'localtime', 'mime.types'],
  ...['ssl/certs', 'ssl/openssl.cnf', 'ca-certificates', 'pki/tls/certs', 'pki/ca-trust/extracted'],
];

/** The programs of the machine as it has them: the directories at the root are links into /usr on most. */
function system(): string[] {
  const linked = ['/bin', '/sbin', '/lib', '/lib32', '/lib64'].filter((path) => existsSync(path));
  return [
    ...['--ro-bind', '/usr', '/usr'],
    ...linked.flatMap((path) => {
      return lstatSync(path).isSymbolicLink() ? ['--symlink', readlinkSync(path), path] : ['--ro-bind', path, path];
    }),
  ];
}

function bridgeCommand({ program }: PodBridge): string[] {
  return [`${BRIDGE}/node`, `${BRIDGE}/bridge${extname(program)}`, String(BRIDGE_PORT), `${BRIDGE}/proxy`];
}

function bridged({ node, program, socket }: PodBridge): string[] {
  return [
    ...['--perms', '0755', '--dir', BRIDGE, '--ro-bind', node, `${BRIDGE}/node`],
    ...['--ro-bind', program, `${BRIDGE}/bridge${extname(program)}`, '--ro-bind', socket, `${BRIDGE}/proxy`],
  ];
}

function environment(hasNetwork: boolean): Readonly<Record<string, string>> {
  return {
    ...{ PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', HOME: '/tmp', TMPDIR: '/tmp' },
    ...{ USER: 'agent', LOGNAME: 'agent', SHELL: '/bin/bash', LANG: 'C.UTF-8', PWD: WORKSPACE },
    ...(hasNetwork ? proxyVariables(`http://127.0.0.1:${BRIDGE_PORT}`) : {}),
  };
}
