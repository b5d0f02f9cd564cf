import { createHash } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { EMPTY_MANIFEST, FILE_MODE } from '#src/domain/sandbox/manifest.ts';
import { SandboxUnavailableError, VolumeLostError } from '#src/drivers/sandbox/port.ts';
import type { PodDriver } from '#src/drivers/sandbox/port.ts';
import { TestPod } from '../support/pods.ts';
import type { TestPods } from '../support/pods.ts';
import { ENDLESS_SCRIPT, MemoryContents } from '../support/sandboxes.ts';

/** Numbers of system calls, for perl's `syscall`. */
const CALLS = {
  x64: {
    unshare: 272,
    mount: 165,
    bpf: 321,
    io_uring: 425,
    keyctl: 250,
    ptrace: 101,
    setns: 308,
    clone: 56,
    chroot: 161,
  },
  arm64: {
    unshare: 97,
    mount: 40,
    bpf: 280,
    io_uring: 425,
    keyctl: 219,
    ptrace: 117,
    setns: 268,
    clone: 220,
    chroot: 51,
  },
}[process.arch === 'arm64' ? 'arm64' : 'x64'];
const NEW_USER = 0x10000000;
const FAMILIES = { vsock: 40, packet: 17, alg: 38, netlinkAudit: 16 };

/** What confines the pods of this machine. */
export function podWallsSuite(open: () => Promise<TestPods>): void {
  let pods: TestPods;
  let driver: PodDriver;
  beforeAll(async () => {
    pods = await open();
    driver = pods.driver;
  });
  afterAll(async () => await pods[Symbol.asyncDispose]());
  const pod = async (tenant?: string) => await TestPod.start(driver, tenant);

  describe('commands', () => {
    test('see the programs of the machine and a workspace, and nothing else of it', async () => {
      const one = await pod();
      expect(await one.out('pwd')).toBe('/workspace\n');
      const seen = await one.out(
        'ls /; id -u; ls /proc | grep -c "^[0-9]"; env; cat /etc/passwd /proc/*/cmdline | tr "\\0" " "; hostname; ls -A /root /home /var 2>&1',
      );
      for (const text of [process.cwd(), pods.directory, 'root:x:0']) expect(seen).not.toContain(text);
      expect(seen).not.toContain('AGENT_HOST');
      expect(seen.split('\n')).not.toContain('0');
      expect(seen).toMatch(/^bin\ndev\netc\n(lib\w*\n)+proc\nrun\nsbin\ntmp\nusr\nworkspace\n\d+\n[1-9]\n/);
      for (const name of ['root', 'home', 'var']) expect(seen).toContain(`'/${name}': No such file or directory`);
    });

    test('can write to their workspace and to /tmp only', async () => {
      const one = await pod();
      const script =
        'for d in / /usr /etc /dev /run /proc /proc/sys/kernel; do touch $d/x 2>/dev/null && echo $d; done; true';
      expect(await one.out(script)).toBe('');
      expect(await one.out('for d in /tmp /dev/shm .; do touch $d/x && echo $d; done')).toBe('/tmp\n/dev/shm\n.\n');
    });

    test('have no network, not even that of the machine', async () => {
      const one = await pod();
      const script = `exec 3<>/dev/tcp/127.0.0.1/22 || echo none; cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '`;
      expect(await one.out(script)).toBe('none\nlo\n');
    });

    test('have no rights, and cannot gain any', async () => {
      const one = await pod();
      const status = await one.out('grep -E "^(Cap|NoNew|Seccomp:)" /proc/self/status | tr -d "\\t"');
      expect(status).toBe(
        `${['Inh', 'Prm', 'Eff', 'Bnd', 'Amb'].map((name) => `Cap${name}:${'0'.repeat(16)}\n`).join('')}NoNewPrivs:1\nSeccomp:2\n`,
      );
      await one.out('cp /usr/bin/id own');
      const bits = await one.bash('chmod u+s own; chmod g+s own; install -m 6755 own other; stat -c %a own');
      expect(bits).toMatchObject({ result: { stdout: expect.stringMatching(/^[0-7]{3}\n$/) } });
    });

    test.each([
      ['a user namespace', `${CALLS.unshare}, ${NEW_USER}`],
      ['a user namespace by clone', `${CALLS.clone}, ${NEW_USER}, 0, 0, 0, 0`],
      ['another namespace', `${CALLS.setns}, 0, 0`],
      ['a mount', `${CALLS.mount}, 0, 0, 0, 0, 0`],
      ['another root', `${CALLS.chroot}, my $root = "/"`],
      ['BPF', `${CALLS.bpf}, 0, 0, 0`],
      ['io_uring', `${CALLS.io_uring}, 1, 0`],
      ['the keys of the kernel', `${CALLS.keyctl}, 0, 0, 0, 0, 0`],
      ['the memory of others', `${CALLS.ptrace}, 16, 1, 0, 0`],
    ])('are refused %s', async (_, args) => {
      const one = await pod();
      expect(await one.out(`perl -e 'print syscall(${args}), " ", $! + 0'`)).toBe('-1 1');
    });

    test('are refused calls that are newer than the table, and sockets that know no namespaces', async () => {
      const one = await pod();
      expect(await one.out(`perl -e 'print syscall(500, 0), " ", $! + 0'`)).toBe('-1 38');
      for (const [name, family] of Object.entries(FAMILIES)) {
        const script = `perl -e 'socket(S, ${family}, 3, 9) and print "open"; print $! + 0'`;
        expect(await one.out(script), name).toBe('97');
      }
      expect(
        await one.out(`perl -e 'socket(S, 2, 1, 0) and socket(S, 10, 1, 0) and socket(S, 1, 1, 0) and print 1'`),
      ).toBe('1');
    });
  });

  describe('a command that takes too much', () => {
    test('memory: is ended', async () => {
      const one = await pod();
      one.limits = { ...one.limits, memoryBytes: 134_217_728 };
      const answer = await one.bash(`perl -e 'my @a; push @a, "x" x 1000000 for 1 .. 2000; sleep 60'`);
      // Where no group bounds it, the system may refuse the memory before the Host sees that it is too much.
      expect(JSON.stringify(answer)).toMatch(/"code":"out_of_memory"|Out of memory/);
      expect(await one.out('echo fine')).toBe('fine\n');
    });

    test('processes: cannot start more, and harms no other pod', async () => {
      const [one, other] = [await pod(), await pod('tn_b')];
      const bomb = one.bash('f() { f | f & }; f; sleep 600', 2);
      expect(await other.out('echo fine')).toBe('fine\n');
      expect(await bomb).toMatchObject({ outcome: 'timeout' });
      expect(await one.out('echo again')).toBe('again\n');
    });

    test('storage: is ended, and may remove what is too much', async () => {
      const one = await pod();
      one.limits = { ...one.limits, storageBytes: 4_194_304 };
      const script = 'for n in $(seq 1000); do head -c 1000000 /dev/zero > f$n; sleep 0.05; done';
      expect(await one.bash(script)).toMatchObject({ outcome: 'killed', code: 'limit_exceeded' });
      const write = await one.call({ name: 'write', input: { path: 'more', content: 'x' } });
      expect(write).toMatchObject({ outcome: 'failed', code: 'limit_exceeded' });
      expect(await driver.files.write(one.volume, { path: 'm', bytes: Buffer.alloc(9), storageBytes: 9 })).toBe('full');
      expect(await one.out('rm f*; sleep 2; echo fine > f; cat f')).toBe('fine\n');
    });
  });
}

/** What every driver of pods does, whatever runs them. */
export function podSuite(open: () => Promise<TestPods>): void {
  let pods: TestPods;
  let driver: PodDriver;
  beforeAll(async () => {
    pods = await open();
    driver = pods.driver;
  });
  afterAll(async () => await pods[Symbol.asyncDispose]());
  const pod = async (tenant?: string) => await TestPod.start(driver, tenant);

  test('says that it can run pods', async () => {
    expect(await driver.status()).toEqual({ available: true, backend: pods.backend });
  });

  describe('commands', () => {
    test('have their output, their exit code, and what they wrote stays', async () => {
      const one = await pod();
      const made = await one.bash(
        'mkdir -p src; printf é > src/a; ln -s src/a link; chmod 755 src/a; echo err >&2; exit 3',
      );
      expect(made).toMatchObject({
        outcome: 'completed',
        result: { stdout: '', stderr: 'err\n', exitCode: 3 },
        files: null,
      });
      expect(await one.out('cat link; stat -c %a src/a; ls -A "$TMPDIR"; echo y > "$TMPDIR/x"')).toBe('é755\n');
      expect(await one.out('ls -A "$TMPDIR"; echo to > /dev/stdout')).toBe('to\n');
    });

    test('leave no process behind', async () => {
      const one = await pod();
      const script =
        '(while true; do date +%s%N > beat; done) > /dev/null 2>&1 & sleep 0.3; setsid sh -c "while true; do date +%s%N > other; done" > /dev/null 2>&1 & sleep 0.3; echo away';
      expect(await one.out(script)).toBe('away\n');
      const beat = await one.out('cat beat other');
      expect(await one.out('sleep 0.3; cat beat other')).toBe(beat);
    });

    test('of one pod see nothing of another', async () => {
      const [one, other] = [await pod('tn_a'), await pod('tn_b')];
      await one.out('echo mine > secret');
      expect(await other.out('ls -A; ls /workspace/..')).not.toContain('secret');
    });
  });

  describe('a command that takes too much', () => {
    test('time: is ended, and what it wrote stays', async () => {
      const one = await pod();
      const answer = await one.bash(`echo before > f; trap "" TERM INT; ${ENDLESS_SCRIPT}`, 2);
      expect(answer).toMatchObject({ outcome: 'timeout', code: 'timeout' });
      expect(await one.out('cat f')).toBe('before\n');
    });

    test('output: is cut, and ended when there is no end of it', async () => {
      const one = await pod();
      expect(await one.bash('seq 1 200000; seq 1 200000 >&2')).toMatchObject({
        result: { truncated: true, stdout: expect.stringMatching(/^1\n2\n[^]*cut out here[^]*\n200000\n$/) },
      });
      expect(await one.bash('yes')).toMatchObject({ outcome: 'killed', code: 'limit_exceeded' });
    });
  });

  describe('the other tools', () => {
    test('see what commands wrote, and the other way round', async () => {
      const one = await pod();
      await one.out('mkdir d; echo one > d/a.txt; echo two > b.md');
      const call = async (...[name, input]: readonly [string, object]) =>
        await one.call({ name, input } as Parameters<TestPod['call']>[0]);
      expect(await call('read', { path: '/workspace/d/a.txt' })).toMatchObject({ result: { content: 'one\n' } });
      expect(await call('write', { path: 'n/e/w', content: 'new\n' })).toMatchObject({
        result: { path: 'n/e/w', size: 4 },
      });
      expect(await call('edit', { path: 'd/a.txt', oldText: 'one', newText: 'uno' })).toMatchObject({
        result: { replacements: 1 },
      });
      expect(await call('grep', { pattern: 'o$' })).toMatchObject({
        result: { matches: [{ path: 'b.md' }, { path: 'd/a.txt' }] },
      });
      expect(await call('glob', { pattern: '**/*.{md,txt}' })).toMatchObject({
        result: { paths: ['b.md', 'd/a.txt'] },
      });
      expect(await one.out('cat n/e/w d/a.txt; stat -c %u b.md n n/e/w | uniq | wc -l')).toBe('new\nuno\n1\n');
      for (const [name, input, code] of [
        ['read', { path: 'none' }, 'not_found'],
        ['read', { path: 'd' }, 'is_directory'],
        ['write', { path: 'd', content: '' }, 'is_directory'],
        ['write', { path: 'b.md/x', content: '' }, 'invalid_path'],
        ['read', { path: '../x' }, 'invalid_path'],
        ['edit', { path: 'b.md', oldText: 'none', newText: '' }, 'no_match'],
      ] as const) {
        expect(await call(name, input), JSON.stringify(input)).toMatchObject({ outcome: 'failed', code });
      }
    });

    test('follow no link, and are not held up by a pipe', async () => {
      const one = await pod();
      await one.out(
        'ln -s /etc/passwd p; ln -s / root; ln -s ../../.. up; mkfifo pipe; mkdir d; echo x > d/f; ln -s d in; ln -s d/f file; perl -e "socket(S,1,1,0); bind(S, pack(q(Sa*), 1, q(sock)))"',
      );
      for (const path of ['p', 'root/etc/passwd', 'up/etc/passwd', 'pipe', 'in/f', 'file', 'sock']) {
        expect(await one.call({ name: 'read', input: { path } }), path).toMatchObject({ code: 'not_found' });
        expect(await driver.files.open(one.volume, path), path).toBeNull();
        expect(await driver.files.stat(one.volume, path), path).toBeNull();
      }
      expect(await one.paths()).toEqual(['d/f']);
      for (const path of ['root/tmp/planted', 'in/planted', 'p/planted']) {
        expect(await one.call({ name: 'write', input: { path, content: 'x' } }), path).toMatchObject({
          code: 'invalid_path',
        });
      }
      // A link is replaced, not followed.
      expect(await one.call({ name: 'write', input: { path: 'p', content: 'mine' } })).toMatchObject({
        outcome: 'completed',
      });
      expect(await one.out('cat p; test -L p || echo file')).toBe('minefile\n');
      expect(await driver.files.remove(one.volume, 'root')).toBe(true);
      expect(await driver.files.remove(one.volume, 'up')).toBe(true);
      expect(await driver.files.remove(one.volume, 'in/f')).toBe(false);
      expect(await one.out('cat d/f')).toBe('x\n');
    });

    test('files are shown with their hashes, and read in part', async () => {
      const one = await pod();
      await one.out('printf 0123456789 > f; mkdir d; echo é > "d/a b"');
      const sha256 = createHash('sha256').update('0123456789').digest('hex');
      expect(await driver.files.stat(one.volume, 'f')).toEqual({ path: 'f', size: 10, sha256 });
      expect(await driver.files.list(one.volume, 'd')).toMatchObject([{ path: 'd/a b', size: 3 }]);
      const part = await driver.files.open(one.volume, 'f', { start: 2, end: 4 });
      expect(Buffer.concat(await (part?.toArray() ?? [])).toString()).toBe('234');
      await one.out('printf 9876543210 > f');
      expect((await driver.files.stat(one.volume, 'f'))?.sha256).not.toBe(sha256);
    });
  });

  describe('volumes', () => {
    test('begin with the first files, whose program can be run', async () => {
      const contents = new MemoryContents();
      const bytes = Buffer.from('#!/bin/sh\necho started\n');
      const sha256 = createHash('sha256').update(bytes).digest('hex');
      await contents.write(sha256, bytes);
      const one = new TestPod(driver);
      const files = [
        { path: 'bin/start', sha256, size: bytes.length, mode: 0o755 },
        { path: 'r', sha256, size: bytes.length, mode: FILE_MODE },
      ];
      await one.provision({ ...EMPTY_MANIFEST, files, directories: ['empty/dir'] }, contents);
      expect(await one.out('./bin/start; ls -p; rm r; ls empty')).toBe('started\nbin/\nempty/\nr\ndir\n');
      await one.provision({ ...EMPTY_MANIFEST, files }, contents);
      expect(await one.paths()).toEqual(['bin/start']);
    });

    test('that are discarded are lost, whatever a command left in them', async () => {
      const one = await pod();
      await one.out('mkdir -p a/b; echo x > a/b/c; chmod 000 a/b a');
      expect(await driver.volumes()).toContainEqual(one.volume);
      expect(await driver.has(one.volume)).toBe(true);
      await driver.discard(one.volume);
      await driver.discard(one.volume);
      expect(await driver.has(one.volume)).toBe(false);
      expect(await driver.volumes()).not.toContainEqual(one.volume);
      await expect(one.bash('true')).rejects.toBeInstanceOf(VolumeLostError);
      await expect(driver.files.list(one.volume, '')).rejects.toBeInstanceOf(VolumeLostError);
    });
  });

  describe('one command at a time', () => {
    test('an older one is ended by a newer, and does not begin after it', async () => {
      const one = await pod();
      const older = Promise.allSettled([one.bash('echo begun > begun; sleep 600')]);
      while (!(await one.paths())?.includes('begun')) await new Promise((resolve) => setTimeout(resolve, 20));
      const newer = new TestPod(driver);
      Object.assign(newer, { volume: one.volume, fence: { hostEpoch: 1, epoch: 2 } });
      expect(await newer.out('echo newer')).toBe('newer\n');
      expect(await older).toMatchObject([{ value: { outcome: 'killed', code: 'sandbox_lost' } }]);
      expect(await one.bash('echo late > late')).toMatchObject({ outcome: 'failed', code: 'sandbox_lost' });
      newer.fence = { hostEpoch: 2, epoch: 2 };
      expect(await newer.out('ls')).toBe('begun\n');
      newer.fence = { hostEpoch: 1, epoch: 9 };
      expect(await newer.bash('echo late > late')).toMatchObject({ code: 'sandbox_lost' });
    });

    test('one that is given up rejects with the reason, and nothing of it runs on', async () => {
      const one = await pod();
      const controller = new AbortController();
      const call = one.bash('while true; do date +%s%N > beat; done', 600, controller.signal);
      while (!(await one.paths())?.includes('beat')) await new Promise((resolve) => setTimeout(resolve, 20));
      controller.abort(new Error('not wanted any more'));
      await expect(call).rejects.toThrow('not wanted any more');
      const beat = await one.out('cat beat');
      expect(await one.out('sleep 0.3; cat beat')).toBe(beat);
    });
  });

  test('a driver that is stopped gives its calls back', async () => {
    await using stopping = await open();
    const four = await Promise.all([1, 2, 3, 4].map(async () => await TestPod.start(stopping.driver)));
    const ends = Promise.allSettled(four.map(async (one) => await one.bash(`touch begun; ${ENDLESS_SCRIPT}`, 600)));
    const [one] = four;
    if (one === undefined) throw new Error('there are no pods');
    while (!(await one.paths())?.includes('begun')) await new Promise((resolve) => setTimeout(resolve, 20));
    await stopping.driver.stop();
    for (const end of await ends) expect(end).toMatchObject({ reason: expect.any(SandboxUnavailableError) });
    await expect(one.bash('true')).rejects.toBeInstanceOf(SandboxUnavailableError);
  });
}
