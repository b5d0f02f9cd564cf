import { endianness } from 'node:os';

/**
 * Which system calls a command of a pod may make: a classic BPF program, which bubblewrap installs before the command
 * starts. What opens new parts of the kernel to an unprivileged process (namespaces, mounts, BPF, io_uring, keys), what
 * looks into other processes, and what changes the machine is refused; so is every call that is newer than this table.
 */

/** Numbers of a call on x86_64 and on arm64; null: not there. */
type Numbers = readonly [x64: number | null, arm64: number | null];

const DENIED: Readonly<Record<string, Numbers>> = {
  acct: [163, 89],
  add_key: [248, 217],
  adjtimex: [159, 171],
  bpf: [321, 280],
  chroot: [161, 51],
  clock_adjtime: [305, 266],
  clock_settime: [227, 112],
  create_module: [174, null],
  delete_module: [176, 106],
  fanotify_init: [300, 262],
  finit_module: [313, 273],
  fsconfig: [431, 431],
  fsmount: [432, 432],
  fsopen: [430, 430],
  fspick: [433, 433],
  get_mempolicy: [239, 236],
  init_module: [175, 105],
  io_uring_enter: [426, 426],
  io_uring_register: [427, 427],
  io_uring_setup: [425, 425],
  ioperm: [173, null],
  iopl: [172, null],
  kcmp: [312, 272],
  kexec_file_load: [320, 294],
  kexec_load: [246, 104],
  keyctl: [250, 219],
  lookup_dcookie: [212, 18],
  mbind: [237, 235],
  migrate_pages: [256, 238],
  modify_ldt: [154, null],
  mount: [165, 40],
  mount_setattr: [442, 442],
  move_mount: [429, 429],
  move_pages: [279, 239],
  name_to_handle_at: [303, 264],
  nfsservctl: [180, 42],
  open_by_handle_at: [304, 265],
  open_tree: [428, 428],
  perf_event_open: [298, 241],
  pidfd_getfd: [438, 438],
  pivot_root: [155, 41],
  process_madvise: [440, 440],
  process_vm_readv: [310, 270],
  process_vm_writev: [311, 271],
  ptrace: [101, 117],
  quotactl: [179, 60],
  quotactl_fd: [443, 443],
  reboot: [169, 142],
  request_key: [249, 218],
  set_mempolicy: [238, 237],
  set_mempolicy_home_node: [450, 450],
  setdomainname: [171, 162],
  sethostname: [170, 161],
  setns: [308, 268],
  settimeofday: [164, 170],
  swapoff: [168, 225],
  swapon: [167, 224],
  sysfs: [139, null],
  syslog: [103, 116],
  umount2: [166, 39],
  unshare: [272, 97],
  uselib: [134, null],
  userfaultfd: [323, 282],
  ustat: [136, null],
  vhangup: [153, 58],
};

/** Calls whose arguments are in memory, where a filter cannot see them: libraries fall back to the older ones. */
const ABSENT: Readonly<Record<string, Numbers>> = { clone3: [435, 435], openat2: [437, 437] };
/**
 * Memory that no process has among its own: the kernel keeps it for a descriptor, a number, or a mapping that no longer
 * shows it. Where no group bounds memory, what cannot be counted must not be had.
 */
const UNCOUNTED: Readonly<Record<string, Numbers>> = {
  memfd_create: [319, 279],
  memfd_secret: [447, 447],
  msgget: [68, 186],
  semget: [64, 190],
  shmget: [29, 194],
};
/** The newest call of the table; any later one is absent. */
const NEWEST = 456;

interface Architecture {
  /** As the kernel names it in the data of a filter. */
  readonly audit: number;
  readonly column: 0 | 1;
}

const ARCHITECTURES: Readonly<Record<string, Architecture>> = {
  x64: { audit: 0xc000003e, column: 0 },
  arm64: { audit: 0xc00000b7, column: 1 },
};

const [EPERM, ENOSYS, EAFNOSUPPORT] = [1, 38, 97];
const ALLOW = 0x7fff0000;
const KILL_PROCESS = 0x80000000;
const errno = (code: number): number => 0x00050000 | code;

/** Classic BPF: load a word of the call's data, compare, test bits, return. */
const [LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN] = [0x20, 0x15, 0x35, 0x45, 0x06];
const [NUMBER_AT, ARCHITECTURE_AT] = [0, 4];
const argumentAt = (index: number): number => 16 + 8 * index;

interface Instruction {
  readonly code: number;
  /** How many instructions to leave out when the comparison holds, and when it does not. */
  readonly yes: number;
  readonly no: number;
  readonly value: number;
}

const load = (at: number): Instruction => ({ code: LOAD, yes: 0, no: 0, value: at });
const give = (action: number): Instruction => ({ code: RETURN, yes: 0, no: 0, value: action });
const compare = (code: number, value: number, [yes, no]: readonly [number, number]): Instruction => {
  return { code, yes, no, value };
};

/** If the loaded word is this, what the block decides; the block ends with a return. */
function when(value: number, block: readonly Instruction[]): Instruction[] {
  return [compare(EQUAL, value, [0, block.length]), ...block];
}

/** Flags of clone that make a namespace. */
const NEW_NAMESPACES = 0x7e020000;
/** A file that runs with the rights of its owner: outside of the sandbox, that would be the Host's user. */
const SET_ID_BITS = 0o6000;
/** O_CREAT, and O_TMPFILE without its O_DIRECTORY: with both, the mode is that of a new file. */
const CREATES = 0o100 | 0o20000000;
const SOCKETS = { unix: 1, inet: 2, inet6: 10, netlink: 16 };
const NETLINK_ROUTE = 0;
/** Of mmap. */
const [MAP_SHARED, MAP_ANONYMOUS] = [0x01, 0x20];
/** Text that a terminal takes for typed. */
const [TIOCSTI, TIOCLINUX] = [0x5412, 0x541c];

/** Refuses the call when one of these bits is set in an argument. */
function withoutBits(argument: number, bits: number): Instruction[] {
  return [load(argumentAt(argument)), compare(ANY_BIT, bits, [0, 1]), give(errno(EPERM)), give(ALLOW)];
}

/** The same for the mode of an open, which means something only when a file may be created. */
function createdWithout(flags: number, bits: number): Instruction[] {
  const rest = withoutBits(flags + 1, bits);
  return [load(argumentAt(flags)), compare(ANY_BIT, CREATES, [1, 0]), give(ALLOW), ...rest];
}

/** No network but Unix sockets and IP; in the namespace of a pod IP leads nowhere. Others, such as vsock, know no namespaces. */
function socketFamilies(families: readonly number[]): Instruction[] {
  const netlink = [load(argumentAt(2)), ...when(NETLINK_ROUTE, [give(ALLOW)]), give(errno(EAFNOSUPPORT))];
  return [
    load(argumentAt(0)),
    ...families.flatMap((family) => when(family, [give(ALLOW)])),
    ...when(SOCKETS.netlink, netlink),
    give(errno(EAFNOSUPPORT)),
  ];
}

/** Memory that processes share without a file. */
function withoutSharedMemory(flags: number): Instruction[] {
  const anonymous = compare(ANY_BIT, MAP_ANONYMOUS, [1, 0]);
  return [load(argumentAt(flags)), anonymous, give(ALLOW), ...withoutBits(flags, MAP_SHARED)];
}

type Checked = readonly [name: string, numbers: Numbers, block: readonly Instruction[]];

const CHECKED_UNCOUNTED: readonly Checked[] = [['mmap', [9, 222], withoutSharedMemory(3)]];

/** Calls that depend on their arguments. */
const CHECKED: readonly Checked[] = [
  ['clone', [56, 220], withoutBits(0, NEW_NAMESPACES)],
  ['chmod', [90, null], withoutBits(1, SET_ID_BITS)],
  ['fchmod', [91, 52], withoutBits(1, SET_ID_BITS)],
  ['fchmodat', [268, 53], withoutBits(2, SET_ID_BITS)],
  ['fchmodat2', [452, 452], withoutBits(2, SET_ID_BITS)],
  ['creat', [85, null], withoutBits(1, SET_ID_BITS)],
  ['mknod', [133, null], withoutBits(1, SET_ID_BITS)],
  ['mknodat', [259, 33], withoutBits(2, SET_ID_BITS)],
  ['open', [2, null], createdWithout(1, SET_ID_BITS)],
  ['openat', [257, 56], createdWithout(2, SET_ID_BITS)],
  ['socket', [41, 198], socketFamilies([SOCKETS.unix, SOCKETS.inet, SOCKETS.inet6])],
  ['socketpair', [53, 199], socketFamilies([SOCKETS.unix])],
  [
    'ioctl',
    [16, 29],
    [
      load(argumentAt(1)),
      ...when(TIOCSTI, [give(errno(EPERM))]),
      ...when(TIOCLINUX, [give(errno(EPERM))]),
      give(ALLOW),
    ],
  ],
];

/** Whether there is a filter for an architecture, as `process.arch` names it. */
export function isFilterKnown(arch: string): boolean {
  return Object.hasOwn(ARCHITECTURES, arch) && endianness() === 'LE';
}

/**
 * The filter as bubblewrap reads it. @param isMemoryBounded whether a group bounds the memory of all processes together
 * @throws RangeError for an architecture that it is not made for
 */
export function seccompFilter(arch: string, isMemoryBounded: boolean): Buffer {
  const architecture = ARCHITECTURES[arch];
  if (architecture === undefined) throw new RangeError(`no filter of system calls is known for ${arch}`);
  const { audit, column } = architecture;
  const all = (table: Readonly<Record<string, Numbers>>, action: number): Instruction[] =>
    Object.values(table).flatMap((numbers) => {
      const number = numbers[column];
      return number === null ? [] : when(number, [give(action)]);
    });
  return encoded([
    load(ARCHITECTURE_AT),
    compare(EQUAL, audit, [1, 0]),
    give(KILL_PROCESS),
    load(NUMBER_AT),
    // Also the numbers of x32, a second way to every call.
    compare(AT_LEAST, NEWEST + 1, [0, 1]),
    give(errno(ENOSYS)),
    ...all(ABSENT, errno(ENOSYS)),
    ...all(DENIED, errno(EPERM)),
    ...(isMemoryBounded ? [] : all(UNCOUNTED, errno(ENOSYS))),
    ...[...CHECKED, ...(isMemoryBounded ? [] : CHECKED_UNCOUNTED)].flatMap(([, numbers, block]) => {
      const number = numbers[column];
      return number === null ? [] : when(number, block);
    }),
    give(ALLOW),
  ]);
}

function encoded(program: readonly Instruction[]): Buffer {
  const bytes = Buffer.alloc(program.length * 8);
  for (const [index, { code, yes, no, value }] of program.entries()) {
    bytes.writeUInt16LE(code, index * 8);
    bytes.writeUInt8(yes, index * 8 + 2);
    bytes.writeUInt8(no, index * 8 + 3);
    bytes.writeUInt32LE(value >>> 0, index * 8 + 4);
  }
  return bytes;
}
