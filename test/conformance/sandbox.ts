import { afterAll, beforeAll, expect, test } from 'vitest';
import { EMPTY_MANIFEST } from '#src/domain/sandbox/manifest.ts';
import type { SandboxAnswer, SandboxDriver } from '#src/drivers/sandbox/port.ts';
import { SandboxUnavailableError } from '#src/drivers/sandbox/port.ts';
import { ENDLESS_SCRIPT, TestSandbox } from '../support/sandboxes.ts';

const KIB = 1_024;

function resultOf(answer: SandboxAnswer): unknown {
  if (answer.outcome !== 'completed') throw new Error(`${answer.outcome}: ${answer.message}`);
  return answer.result;
}

/** What every driver of sandboxes does with commands, whatever runs them. */
export function commandSuite(open: () => SandboxDriver): void {
  let driver: SandboxDriver;
  let box: TestSandbox;
  let tenants = 0;
  const fresh = () => new TestSandbox(driver, `tn_${tenants++}`);
  beforeAll(() => {
    driver = open();
    box = fresh();
  });
  afterAll(async () => await driver.stop());

  test('what a command writes is in its answer, and there for the next one', async () => {
    const made = await box.bash('mkdir -p src empty; echo one > src/a.txt; printf é > b.bin; chmod 755 b.bin');
    expect(resultOf(made)).toEqual({ stdout: '', stderr: '', exitCode: 0 });
    expect(made).toMatchObject({ files: box.files, usage: { bytesWritten: 6 } });
    expect(box.files).toMatchObject({
      files: [
        { path: 'b.bin', size: 2, mode: 0o755 },
        { path: 'src/a.txt', size: 4, mode: 0o644 },
      ],
      directories: ['empty'],
    });
    const seen = await box.bash('cat src/a.txt; wc -c < b.bin; ls; echo oops >&2; exit 3');
    expect(resultOf(seen)).toEqual({ stdout: 'one\n2\nb.bin\nempty\nsrc\n', stderr: 'oops\n', exitCode: 3 });
    expect(seen).toMatchObject({ files: null, usage: { bytesWritten: 0 } });
  });

  test('moving, copying, adding to and removing keep what they should, and nothing else', async () => {
    const own = fresh();
    await own.bash('for n in 1 2 3; do echo "$n" > "f$n"; done; mkdir d');
    await own.bash('mv f1 d/g1; cp f2 d/g2; echo more >> f3; rm f2');
    expect(Object.fromEntries(own.paths().map((path) => [path, own.text(path)]))).toEqual({
      'd/g1': '1\n',
      'd/g2': '2\n',
      f3: '3\nmore\n',
    });
    await own.bash('rm -r d f3');
    expect(own.files).toEqual(EMPTY_MANIFEST);
  });

  test('only what a command looks into is fetched', async () => {
    const own = fresh();
    await own.bash('echo a > a; echo b > b; echo c > c');
    own.contents.reads.length = 0;
    await own.bash('ls -l; cp b d; [ -s c ] && cat a');
    expect(own.contents.reads).toEqual([own.files.files.find(({ path }) => path === 'a')?.sha256]);
  });

  test('what was written outside the workspace is gone', async () => {
    const own = fresh();
    await own.bash('echo secret > /tmp/x; cd /; mkdir -p other; echo secret > other/y');
    const answer = await own.bash('cat /tmp/x /other/y');
    expect(answer).toMatchObject({ outcome: 'completed', result: { stdout: '', exitCode: 1 } });
    expect(own.files).toEqual(EMPTY_MANIFEST);
  });

  test('output that is too long is cut, and says so', async () => {
    const { stdout, stderr, truncated } = resultOf(await box.bash('seq 1 60000; seq 1 60000 >&2')) as {
      stdout: string;
      stderr: string;
      truncated: boolean;
    };
    expect(truncated).toBe(true);
    expect(stdout.length + stderr.length).toBeLessThanOrEqual(30_000);
    expect(stdout).toMatch(/^1\n2\n[^]*\[… \d+ characters were cut out here …\][^]*\n60000\n$/);
    expect(stderr).toMatch(/^1\n2\n[^]*\[… \d+ characters were cut out here …\][^]*\n60000\n$/);
  });

  test('a command that never ends is ended, and leaves what was before', async () => {
    const own = fresh();
    await own.bash('echo before > f');
    const answer = await own.bash(`echo after > f; ${ENDLESS_SCRIPT}`, 1);
    expect(answer).toMatchObject({ outcome: 'timeout', code: 'timeout' });
    expect(resultOf(await own.bash('cat f'))).toMatchObject({ stdout: 'before\n' });
  });

  test('a call that is given up rejects with the reason', async () => {
    const controller = new AbortController();
    const call = box.bash(ENDLESS_SCRIPT, 600, controller.signal);
    controller.abort(new Error('not wanted any more'));
    await expect(call).rejects.toThrow('not wanted any more');
  });

  test.each([
    ['a file', { fileBytes: KIB, totalBytes: 10 * KIB, files: 100 }, 'printf "%02000d" 1 > f', /a file has 1024 bytes/],
    [
      'all files together',
      { fileBytes: KIB, totalBytes: 2 * KIB, files: 100 },
      'for i in 1 2 3; do printf "%01000d" 1 > f$i; done',
      /more bytes together/,
    ],
    [
      'their number',
      { fileBytes: KIB, totalBytes: 2 * KIB, files: 5 },
      'for i in 1 2 3 4 5 6; do echo x > f$i; done',
      /5 files/,
    ],
  ])('a limit that is passed ends in a failed call that says which: %s', async (_, limits, script, message) => {
    const own = fresh();
    await own.bash('echo before > f1');
    own.limits = limits;
    const answer = await own.bash(script);
    expect(answer).toMatchObject({
      outcome: 'failed',
      code: 'limit_exceeded',
      message: expect.stringMatching(message),
    });
    expect(own.paths()).toEqual(['f1']);
  });

  test('bytes that cannot be fetched fail the call as they are, and the next one works', async () => {
    const own = fresh();
    await own.bash('echo a > a');
    own.contents.bytes.clear();
    await expect(own.bash('cat a')).rejects.toThrow('these bytes were never kept');
    expect(resultOf(await own.bash('echo fine'))).toMatchObject({ stdout: 'fine\n' });
  });

  test('there is no way out unless one is given, and then it is that one', async () => {
    const own = fresh();
    expect(resultOf(await own.bash('curl -s http://127.0.0.1/'))).toMatchObject({ exitCode: 127 });
    own.web = async ({ method, url, headers, body }) => {
      if (url.includes('forbidden')) throw new Error('this host is not allowed');
      const text = `${method} ${headers['x-a'] ?? ''} ${new TextDecoder().decode(body ?? undefined)}`;
      const bytes = new TextEncoder().encode(text);
      return await Promise.resolve({ status: 200, statusText: 'OK', headers: {}, body: bytes, url });
    };
    const sent = await own.bash('curl -s -X POST -H "X-A: b" -d data http://service.example/path');
    expect(resultOf(sent)).toMatchObject({ stdout: 'POST b data', exitCode: 0 });
    const refused = await own.bash('curl -sS http://forbidden.example/ && echo reached');
    expect(resultOf(refused)).toMatchObject({ stdout: '', stderr: expect.stringContaining('not allowed') });
  });

  test('many calls of several tenants at once are not mixed up', async () => {
    const boxes = Array.from({ length: 6 }, fresh);
    const calls = boxes.flatMap((own, i) =>
      Array.from({ length: 5 }, async (_, n) => resultOf(await own.bash(`echo ${i}-${n}`))),
    );
    const wanted = boxes.flatMap((_, i) =>
      Array.from({ length: 5 }, (__, n) => ({ stdout: `${i}-${n}\n`, stderr: '', exitCode: 0 })),
    );
    expect(await Promise.all(calls)).toEqual(wanted);
  });

  test('a tenant whose commands hang keeps no other from running', async () => {
    const [hanging, other] = [fresh(), fresh()];
    const controller = new AbortController();
    const hung = [1, 2, 3, 4, 5, 6].map(async () => await hanging.bash(ENDLESS_SCRIPT, 600, controller.signal));
    const ends = Promise.allSettled(hung);
    expect(resultOf(await other.bash('echo fine'))).toMatchObject({ stdout: 'fine\n' });
    controller.abort(new Error('enough'));
    expect((await ends).map(({ status }) => status)).toEqual(Array.from({ length: 6 }, () => 'rejected'));
    expect(resultOf(await hanging.bash('echo again'))).toMatchObject({ stdout: 'again\n' });
  });

  test('a driver that is stopped gives its calls back', async () => {
    const stopping = open();
    const own = new TestSandbox(stopping);
    await own.bash('true');
    const under = own.bash(ENDLESS_SCRIPT, 600);
    const waiting = Array.from({ length: 5 }, async () => await own.bash(ENDLESS_SCRIPT, 600));
    const ends = Promise.allSettled([under, ...waiting]);
    await stopping.stop();
    for (const end of await ends) expect(end).toMatchObject({ reason: expect.any(SandboxUnavailableError) });
    await expect(own.bash('true')).rejects.toBeInstanceOf(SandboxUnavailableError);
    expect(stopping.status()).toMatchObject({ children: 0, busy: 0, waiting: 0 });
  });
}

/** What every driver does with the tools that look at files and change them. */
export function fileToolSuite(open: () => SandboxDriver): void {
  let driver: SandboxDriver;
  let box: TestSandbox;
  beforeAll(() => {
    driver = open();
    box = new TestSandbox(driver);
  });
  afterAll(async () => await driver.stop());

  test('write, read, edit, grep and glob', async () => {
    const written = await box.call({
      name: 'write',
      input: { path: '/workspace/src/./a.ts', content: 'one\ntwo\nthree\n' },
    });
    expect(written).toMatchObject({ result: { path: 'src/a.ts', size: 14 }, usage: { bytesWritten: 14 } });
    await box.call({ name: 'write', input: { path: 'b.md', content: '# two\n' } });
    const read = async (input: { offset?: number; limit?: number }) =>
      resultOf(await box.call({ name: 'read', input: { path: 'src/a.ts', ...input } }));
    expect(await read({})).toEqual({ content: 'one\ntwo\nthree\n' });
    expect(await read({ offset: 1, limit: 1 })).toEqual({ content: 'two\n' });
    expect(await read({ offset: 9 })).toEqual({ content: '' });
    const edited = await box.call({ name: 'edit', input: { path: 'src/a.ts', oldText: 'two', newText: '$& 2' } });
    expect(resultOf(edited)).toEqual({ path: 'src/a.ts', replacements: 1 });
    expect(box.text('src/a.ts')).toBe('one\n$& 2\nthree\n');
    const all = await box.call({
      name: 'edit',
      input: { path: 'src/a.ts', oldText: 'e', newText: 'E', replaceAll: true },
    });
    expect(resultOf(all)).toEqual({ path: 'src/a.ts', replacements: 3 });
    const grep = await box.call({ name: 'grep', input: { pattern: '^(ONE|#)', ignoreCase: true } });
    expect(resultOf(grep)).toEqual({
      matches: [
        { path: 'b.md', line: 1, text: '# two' },
        { path: 'src/a.ts', line: 1, text: 'onE' },
      ],
    });
    const inSome = await box.call({ name: 'grep', input: { pattern: '.', glob: '*.ts', maxResults: 2, path: 'src' } });
    expect(resultOf(inSome)).toMatchObject({ matches: [{ line: 1 }, { line: 2 }], truncated: true });
    expect(resultOf(await box.call({ name: 'glob', input: { pattern: '**/*.{ts,md}' } }))).toEqual({
      paths: ['b.md', 'src/a.ts'],
    });
    expect(resultOf(await box.call({ name: 'glob', input: { pattern: '[a-c].*', path: '/workspace' } }))).toEqual({
      paths: ['b.md'],
    });
  });

  test('a command sees what the tools wrote, and the other way round', async () => {
    await box.call({ name: 'write', input: { path: 'shared', content: 'by a tool\n' } });
    expect(resultOf(await box.bash('cat shared; echo by a command > shared'))).toMatchObject({ stdout: 'by a tool\n' });
    expect(resultOf(await box.call({ name: 'read', input: { path: 'shared' } }))).toEqual({
      content: 'by a command\n',
    });
  });

  const LONG = `${'d/'.repeat(70)}f`;
  test.each([
    ['read', { path: 'none' }, 'not_found'],
    ['read', { path: 'src' }, 'is_directory'],
    ['read', { path: '/workspace' }, 'is_directory'],
    ['read', { path: '/etc/passwd' }, 'invalid_path'],
    ['read', { path: '../etc/passwd' }, 'invalid_path'],
    ['read', { path: 'src/../b.md' }, 'invalid_path'],
    ['read', { path: '/workspaces/x' }, 'invalid_path'],
    ['write', { path: 'src', content: '' }, 'is_directory'],
    ['write', { path: '/workspace/', content: '' }, 'is_directory'],
    ['write', { path: 'b.md/x', content: '' }, 'invalid_path'],
    ['write', { path: 'B.md', content: '' }, 'invalid_path'],
    ['write', { path: 'SRC/new', content: '' }, 'invalid_path'],
    ['write', { path: 'a\\b', content: '' }, 'invalid_path'],
    ['write', { path: 'a\nb', content: '' }, 'invalid_path'],
    ['write', { path: 'x'.repeat(256), content: '' }, 'invalid_path'],
    ['write', { path: `${'x'.repeat(200)}/`.repeat(20), content: '' }, 'invalid_path'],
    ['write', { path: LONG, content: '' }, 'invalid_path'],
    ['edit', { path: 'b.md', oldText: 'none', newText: '' }, 'no_match'],
    ['edit', { path: 'src/a.ts', oldText: 'E', newText: '' }, 'not_unique'],
    ['edit', { path: 'none', oldText: 'a', newText: '' }, 'not_found'],
    ['grep', { pattern: 'a', path: 'none' }, 'not_found'],
    ['grep', { pattern: '(' }, 'limit_exceeded'],
    ['grep', { pattern: '(?=a)' }, 'limit_exceeded'],
    ['grep', { pattern: '((a{100}){100}){100}' }, 'limit_exceeded'],
    ['glob', { pattern: '*', path: '..' }, 'invalid_path'],
  ] as const)('%s of %j fails: %s', async (name, input, code) => {
    const before = box.files;
    const answer = await box.call({ name, input } as Parameters<TestSandbox['call']>[0]);
    expect(answer).toMatchObject({ code, message: expect.stringMatching(/\w/) });
    expect(box.files).toBe(before);
  });

  test('names that differ by Unicode form only are one', async () => {
    await box.call({ name: 'write', input: { path: 'caf\u00e9', content: '' } });
    const other = await box.call({ name: 'write', input: { path: 'cafe\u0301', content: '' } });
    expect(other).toMatchObject({ code: 'invalid_path', message: expect.stringContaining('Unicode') });
  });

  test('limits hold, and the text of large files is cut', async () => {
    box.limits = { files: 20, fileBytes: 100_000, totalBytes: 120_000 };
    const large = 'x'.repeat(99) + '\n';
    await box.call({ name: 'write', input: { path: 'large', content: large.repeat(1_000) } });
    const read = resultOf(await box.call({ name: 'read', input: { path: 'large' } })) as { content: string };
    expect(read).toMatchObject({ truncated: true });
    expect(read.content.length).toBeLessThanOrEqual(30_000);
    const tooLarge = [
      await box.call({ name: 'write', input: { path: 'large', content: large.repeat(1_001) } }),
      await box.call({ name: 'write', input: { path: 'second', content: large.repeat(900) } }),
      await box.call({ name: 'edit', input: { path: 'large', oldText: 'x\n', newText: 'xx\n', replaceAll: true } }),
      await box.call({ name: 'edit', input: { path: 'large', oldText: 'x', newText: 'y', replaceAll: true } }),
    ];
    for (const answer of tooLarge) expect(answer).toMatchObject({ outcome: 'failed', code: 'limit_exceeded' });
    const grep = resultOf(await box.call({ name: 'grep', input: { pattern: 'x', maxResults: 1_000 } }));
    expect(grep).toMatchObject({ truncated: true });
  });

  test('a long search lets others work meanwhile', async () => {
    const own = new TestSandbox(driver);
    const word = (n: number) => (n * 2_654_435_761).toString(2).replaceAll('0', 'a').replaceAll('1', 'b');
    const line = Array.from({ length: 100 }, (_, n) => word(n + 1)).join('');
    await own.call({ name: 'write', input: { path: 'text', content: `${line}\n`.repeat(2_500) } });
    let turns = 0;
    const ticking = setInterval(() => (turns += 1), 1);
    try {
      const answer = await own.call({ name: 'grep', input: { pattern: '(a|b)*a(a|b){150}[^ab]' } });
      expect(answer.usage.cpuMs).toBeGreaterThan(0);
      // One may have been due when the search ended; on a machine that stands still there are not many more.
      expect(turns).toBeGreaterThan(1);
    } finally {
      clearInterval(ticking);
    }
  });

  test('a call that has been given up does nothing', async () => {
    const input = { path: 'never', content: '' };
    await expect(box.call({ name: 'write', input }, AbortSignal.abort(new Error('given up')))).rejects.toThrow(
      'given up',
    );
    expect(box.paths()).not.toContain('never');
  });
}
