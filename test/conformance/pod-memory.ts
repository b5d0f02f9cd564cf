import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { PodDriver } from '#src/drivers/sandbox/port.ts';
import { TestPod } from '../support/pods.ts';
import type { TestPods } from '../support/pods.ts';

/** Numbers of system calls, for perl's `syscall`. */
const CALLS = { x64: { memfd: 319, mmap: 9, read: 0 }, arm64: { memfd: 279, mmap: 222, read: 63 } }[
  process.arch === 'arm64' ? 'arm64' : 'x64'
];
const LIMIT_MIB = 64;
const HELD = 256 * 1_048_576;
/** Far longer than until it is seen: what is not ended within it, is not seen at all. */
const HOLD = 'sleep 30; print "held"';

const perl = (script: string): string => `perl -e '${script}'`;
const nested = (command: string): string =>
  `f() { if (( $1 > 0 )); then ( f $(( $1 - 1 )); true ); else ${command}; fi; }; f 80`;
/** Touched by a process that ends, so that no process shows it among its own. */
const touched = (mapped: string): string =>
  `my $at = ${mapped}; die $! if $at == -1; open Z, "<", "/dev/zero"; if (fork == 0) { syscall(${CALLS.read}, fileno(Z), $at, ${HELD}); exit } wait; die if $?;`;

const WAYS: Readonly<Record<string, string>> = {
  'a file without a name': perl(
    `my ($n, $x, @all) = ("m", "x" x 33554432); for (1 .. 8) { my $fd = syscall(${CALLS.memfd}, $n, 0); die $! if $fd < 0; open(my $f, "+>&=", $fd); syswrite($f, $x) // die $!; push @all, $f } ${HOLD}`,
  ),
  'shared memory of System V': perl(
    `my $id = shmget(0, ${HELD}, 0600) // die $!; shmwrite($id, "x" x 1048576, $_ << 20, 1048576) for 0 .. 255; ${HOLD}`,
  ),
  'a shared mapping': perl(`${touched(`syscall(${CALLS.mmap}, 0, ${HELD}, 3, 0x21, -1, 0)`)} ${HOLD}`),
  'a shared mapping of zeros': perl(
    `open(my $z, "+<", "/dev/zero") or die; ${touched(`syscall(${CALLS.mmap}, 0, ${HELD}, 3, 1, fileno($z), 0)`)} ${HOLD}`,
  ),
  'files in memory': `head -c 31457280 /dev/zero > /tmp/a; head -c 31457280 /dev/zero > /dev/shm/b; ${perl(`my $x = "x" x 41943040; ${HOLD}`)}`,
  'names of files in memory': perl(`for my $n (1 .. 150000) { open F, ">", "/tmp/$n" or die $! } ${HOLD}`),
  'a process far down': nested(perl(`my $x = "x" x 209715200; ${HOLD}`)),
};

/** However a command comes to more memory than its pod may have, it does not keep it. */
export function podMemorySuite(open: () => TestPods): void {
  let pods: TestPods;
  let driver: PodDriver;
  beforeAll(() => {
    pods = open();
    driver = pods.driver;
  });
  afterAll(async () => await pods[Symbol.asyncDispose]());

  describe('memory', () => {
    test.each(Object.entries(WAYS))('beyond the limit is not to be had as %s', async (_, script) => {
      const one = await TestPod.start(driver);
      one.limits = { ...one.limits, memoryBytes: LIMIT_MIB * 1_048_576 };
      const answer = await one.bash(script);
      expect('result' in answer ? answer.result : {}).not.toMatchObject({ stdout: expect.stringContaining('held') });
      expect(await one.out('echo fine')).toBe('fine\n');
    });

    test('within the limit is there, in the ways that programs use', async () => {
      const one = await TestPod.start(driver);
      const script = `echo a | sort; seq 3 > /dev/shm/s; mktemp -d > /tmp/t; head -c 5 /dev/zero | wc -c; ${perl('open my $m, "+>", undef; print $m "x" x 10000000; print tell $m')}`;
      expect(await one.out(script)).toBe('a\n5\n10000000');
    });
  });
}
