import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { WORKSPACE_LIMITS } from '#src/domain/sandbox/manifest.ts';
import type { SandboxAnswer, SandboxDriver } from '#src/drivers/sandbox/port.ts';
import { confinements, TestSandbox, virtualSandboxes } from '../support/sandboxes.ts';

const resultSchema = z.object({ stdout: z.string(), stderr: z.string(), exitCode: z.int() });
const MS = 240_000;
/** For what ends by a limit of its own, on the slowest machine. */
const SECONDS = 90;

/** A program in a text of the shell. */
const python = (program: string) => `python3 - <<'PROGRAM'\n${program}\nPROGRAM`;

function result(answer: SandboxAnswer): z.infer<typeof resultSchema> {
  expect(answer).toMatchObject({ outcome: 'completed' });
  return resultSchema.parse(answer.outcome === 'completed' ? answer.result : null);
}

/** What gets out prints `got`; what is refused says nothing. */
const attempts = (...lines: readonly string[]) =>
  python(
    ['import os', 'def attempt(f):', '  try: print("got", f())', '  except BaseException as e: pass', ...lines].join(
      '\n',
    ),
  );

const ESCAPES: readonly (readonly [string, string])[] = [
  [
    'files of the machine',
    attempts(
      ...['/etc/passwd', '/proc/self/environ', '/proc/1/cmdline', '/dev/mem', '/usr/bin/env', '/sys/kernel'].map(
        (path) => `attempt(lambda: open("${path}").read())`,
      ),
    ),
  ],
  [
    'descriptors of the process',
    attempts(
      'for fd in range(3, 40): attempt(lambda: os.write(fd, b"{}"))',
      'for fd in range(3, 40): attempt(lambda: os.read(fd, 10))',
    ),
  ],
  [
    'programs',
    attempts(
      'import subprocess',
      'attempt(lambda: subprocess.run(["id"]))',
      'attempt(lambda: os.popen("id").read())',
      'attempt(os.fork)',
      'attempt(lambda: os.execv("/bin/sh", ["sh"]))',
      'if os.system("id") != -1: print("got")',
    ),
  ],
  [
    'JavaScript',
    attempts(
      'for name in ["js", "pyodide", "_pyodide_core", "_emscripten", "emscripten", "ctypes", "_ctypes"]: attempt(lambda: __import__(name))',
      'attempt(lambda: os.run_script("1"))',
    ),
  ],
  ['threads', attempts('import threading', 'attempt(lambda: threading.Thread(target=print).start())')],
  [
    'links',
    attempts('attempt(lambda: os.symlink("/etc/passwd", "l"))', 'attempt(lambda: os.link("/etc/passwd", "l"))'),
  ],
  [
    'its own program',
    attempts(
      'attempt(lambda: open("/usr/lib/python313.zip", "r+b", buffering=0).write(b"x"))',
      'attempt(lambda: os.remove("/usr/lib/python313.zip"))',
      'attempt(lambda: os.mkdir("/home/x"))',
      'attempt(lambda: os.rmdir("/workspace"))',
    ),
  ],
];

const BOMBS: readonly (readonly [string, string])[] = [
  ['many objects', python('x = [bytearray(1_000_000) for i in range(1_000)]')],
  [
    'one object, with the refusal caught',
    python('while True:\n  try: x = bytearray(300_000_000)\n  except MemoryError: pass'),
  ],
  ['a pipe', python('import os\nr, w = os.pipe()\nwhile True: os.write(w, b"x" * 1_000_000)')],
  ['deep calls', python('import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()')],
  ['a value of SQLite', 'sqlite3 :memory: "select hex(zeroblob(400000000))"'],
  [
    'a database of SQLite',
    `sqlite3 :memory: "pragma max_page_count = 1000000000; create table t(x); with recursive c(n) as (select 1 union all select n + 1 from c) insert into t select randomblob(100000) from c"`,
  ],
];

const LIMITS: readonly (readonly [string, RegExp])[] = [
  ['open("big", "wb").write(b"x" * 20_000_000)', /a file has 10485760 bytes at most/],
  ['for i in range(20): open(f"f{i}", "wb").write(b"x" * 9_000_000)', /more bytes together than a workspace holds/],
  ['for i in range(50_000): open(f"f{i}", "wb").close()', /more files and directories than a workspace holds/],
];

/** Less than by default, so that less has to be filled. */
const MEMORY_MIB = 128;
/** One of each program: these bombs are tried in every confinement. */
const EVERYWHERE = new Set(['many objects', 'a value of SQLite']);

/** Sandboxes with Python, of a driver that is stopped after the tests around. */
function sandboxes(bubblewrap: 'off' | 'required') {
  let driver: SandboxDriver;
  beforeAll(() => {
    driver = virtualSandboxes({ bubblewrap, memoryMiB: MEMORY_MIB, path: process.env['PATH'] });
  });
  afterAll(async () => await driver.stop());
  return (hasPython = true): TestSandbox => {
    const box = new TestSandbox(driver);
    box.python = hasPython;
    return box;
  };
}

/** How a program ends that takes what memory there is, and what the next call says. */
async function endOf(sandbox: () => TestSandbox, script: string) {
  const answer = await sandbox().bash(script, SECONDS);
  const code = answer.outcome === 'completed' ? null : answer.code;
  return { outcome: answer.outcome, code, after: result(await sandbox().bash('echo fine')).stdout };
}
const OUT_OF_MEMORY = { outcome: 'killed', code: 'out_of_memory', after: 'fine\n' };

describe.each(confinements())('python3 and sqlite3, bubblewrap %s', (bubblewrap) => {
  const sandbox = sandboxes(bubblewrap);

  test('run programs on the files of the sandbox, with arguments, input and exit code', { timeout: MS }, async () => {
    const box = sandbox();
    await box.call({
      name: 'write',
      input: {
        path: 'p.py',
        content:
          'import sys, json\nprint(json.dumps(sys.argv), sys.stdin.read())\nopen("out.txt", "w").write("é")\nsys.exit(7)\n',
      },
    });
    const first = result(
      await box.bash(
        'mkdir d; cd d; echo input | python3 ../p.py a "b c" | tr a-z A-Z; echo "${PIPESTATUS[1]}"; cat out.txt',
      ),
    );
    expect(first.stdout).toBe('["../P.PY", "A", "B C"] INPUT\n\n7\né');
    expect(box.text('d/out.txt')).toBe('é');
    const second = result(
      await box.bash(
        "python3 -V; python3 -m json.tool <<< '[1]'; A=1 python -c 'import os; print(os.environ[\"A\"], os.getcwd())'; python3 -c 'raise ValueError(3)'",
      ),
    );
    expect(second.stdout).toBe('Python 3.13.2\n[\n    1\n]\n1 /workspace\n');
    expect(second.stderr).toContain('ValueError: 3');
    expect(second.exitCode).toBe(1);
  });

  test.each(ESCAPES)('no way to %s', { timeout: MS }, async (_, script) => {
    expect(result(await sandbox().bash(script))).toEqual({ stdout: '', stderr: '', exitCode: 0 });
  });

  test('no way to a file or a server of the Host that are there', { timeout: MS }, async () => {
    const directory = await mkdtemp(join(tmpdir(), 'agent-host-planted-'));
    await writeFile(join(directory, 'secret'), 'the secret itself');
    let connections = 0;
    const server = createServer().on('connection', () => connections++);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const address = z.object({ port: z.int() }).parse(server.address());
    try {
      const script = attempts(
        'import socket, urllib.request',
        `attempt(lambda: open("${directory}/secret").read())`,
        `attempt(lambda: urllib.request.urlopen("http://127.0.0.1:${address.port}").read())`,
        `attempt(lambda: socket.create_connection(("127.0.0.1", ${address.port}), 2).recv(1))`,
      );
      expect(result(await sandbox().bash(script)).stdout).toBe('');
      const sqlite = `sqlite3 :memory: "attach '${directory}/secret' as s; select * from s.sqlite_schema; select load_extension('x'); select readfile('${directory}/secret')"`;
      expect(JSON.stringify(await sandbox().bash(sqlite))).not.toContain('the secret itself');
      expect(connections).toBe(0);
    } finally {
      server.close();
      await rm(directory, { recursive: true });
    }
  });

  test('what never ends is ended at the deadline of the call', { timeout: MS }, async () => {
    const scripts = [
      'python3 -c "while True: pass"',
      'timeout 1 python3 -c "while True: pass"',
      'sqlite3 :memory: "with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) from c"',
    ];
    const answers = await Promise.all(scripts.map(async (script) => await sandbox().bash(script, 4)));
    expect(answers.map(({ outcome }) => outcome)).toEqual(['timeout', 'timeout', 'timeout']);
  });

  test.each(BOMBS.filter(([name]) => EVERYWHERE.has(name)))(
    'memory ends the call, and says so: %s',
    { timeout: MS },
    async (_, script) => {
      expect(await endOf(sandbox, script)).toEqual(OUT_OF_MEMORY);
    },
  );
});

/** What is the interpreters' own is the same, whatever is around their process. */
describe('programs of python3 and sqlite3', () => {
  const sandbox = sandboxes(confinements().at(-1) ?? 'off');

  test('read what an earlier call left, change a part of it, and leave copies alone', { timeout: MS }, async () => {
    const box = sandbox();
    const bytes = randomBytes(300_000);
    await box.bash(`base64 -d > a.bin <<'END'\n${bytes.toString('base64')}\nEND\ncp a.bin b.bin`);
    const script = python(
      'import os\nf = open("a.bin", "r+b"); f.seek(10); f.write(b"hello"); f.seek(0, 2); f.write(b"end"); f.close()\nb = open("b.bin", "rb").read()\nprint(len(b), os.stat("a.bin").st_size)\nos.truncate("b.bin", 5)\nos.truncate("b.bin", 8)',
    );
    expect(result(await box.bash(script)).stdout).toBe('300000 300003\n');
    const kept = (path: string) =>
      box.contents.bytes.get(box.files.files.find((file) => file.path === path)?.sha256 ?? '');
    expect(
      Buffer.from(kept('a.bin') ?? []).equals(
        Buffer.concat([bytes.subarray(0, 10), Buffer.from('hello'), bytes.subarray(15), Buffer.from('end')]),
      ),
    ).toBe(true);
    expect(Buffer.from(kept('b.bin') ?? []).equals(Buffer.concat([bytes.subarray(0, 5), Buffer.alloc(3)]))).toBe(true);
  });

  test(
    'rename, replace, remove and list as a machine does, and keep temporary files out',
    { timeout: MS },
    async () => {
      const box = sandbox();
      const script = python(
        'import os, shutil, tempfile\nos.makedirs("d/e"); open("d/e/f", "w").write("1"); open("g", "w").write("22")\nos.replace("g", "d/e/f"); print(open("d/e/f").read())\nos.rename("d", "h"); shutil.copytree("h", "i"); shutil.rmtree("h")\nwith tempfile.TemporaryFile() as t:\n  t.write(b"x" * 1000); t.seek(0); print(len(t.read()))\nprint(sorted(os.walk(".")))\ntry: open("I", "w")\nexcept FileExistsError: print("case")\nopen("/tmp/t", "w").write("t")',
      );
      const { stdout, stderr } = result(await box.bash(`${script}\ncat /tmp/t`));
      expect(stderr).toBe('');
      expect(stdout).toBe("22\n1000\n[('.', ['i'], []), ('./i', ['e'], []), ('./i/e', [], ['f'])]\ncase\nt");
      expect(box.paths()).toEqual(['i/e/f']);
    },
  );

  test(
    'each run of a program has an instance of its own, and the memory of the ones before is free',
    { timeout: MS },
    async () => {
      const box = sandbox();
      const run = "python3 -c \"import sys; print(hasattr(sys, 'left')); sys.left = b'x' * 70_000_000\"";
      expect(result(await box.bash(`for i in 1 2 3 4 5; do ${run}; done`, SECONDS)).stdout).toBe('False\n'.repeat(5));
      const left =
        'sqlite3 :memory: "attach \'left\' as l; create table l.t(a)"; sqlite3 :memory: "attach \'left\' as l; select * from l.t"';
      expect(result(await box.bash(left)).stderr).toContain('no such table: l.t');
    },
  );

  test('a program may have its memory beside files that fill the sandbox', { timeout: MS }, async () => {
    const files = 'for i in range(10): open(f"f{i}", "wb").write(b"x" * 9_000_000)';
    const script = `${python(files)}\npython3 -c "print(len(b'x' * 90_000_000))"\nrm f*`;
    expect(result(await sandbox().bash(script, SECONDS)).stdout).toBe('90000000\n');
  });

  test('sqlite3 keeps a database as a file, and shows results as it is told to', { timeout: MS }, async () => {
    const box = sandbox();
    await box.bash('sqlite3 x.db "create table t(a, b); insert into t values (1, \'x y\'), (2, null)"');
    const shown = result(
      await box.bash(
        "sqlite3 x.db 'select * from t'; sqlite3 -json x.db 'select * from t'; sqlite3 -header -csv x.db 'select * from t'; sqlite3 -header -column x.db 'select * from t'; printf '.tables\\n.mode line\\nselect a from t limit 1;' | sqlite3 x.db",
      ),
    );
    expect(shown.stdout).toBe(
      '1|x y\n2|\n[{"a":1,"b":"x y"},\n{"a":2,"b":null}]\na,b\n1,"x y"\n2,\na  b\n-  ---\n1  x y\n2\nt\na = 1\n',
    );
    const faults = result(
      await box.bash(
        'sqlite3 x.db "select nope"; sqlite3 -nope x.db; sqlite3 d/../x.db "delete from t"; sqlite3 -readonly x.db "drop table t"; sqlite3 x.db "select count(*) from t"',
      ),
    );
    expect(faults.stderr).toContain('no such column: nope');
    expect(faults.stderr).toContain('unknown option: -nope');
    expect(faults.stdout).toBe('0\n');
  });

  test.each(LIMITS)('limits of the files hold: %s', { timeout: MS }, async (program, words) => {
    const box = sandbox();
    box.limits = { ...WORKSPACE_LIMITS, files: 1_000 };
    const answer = await box.bash(python(program), SECONDS);
    expect(answer).toMatchObject({ outcome: 'failed', code: 'limit_exceeded', message: expect.stringMatching(words) });
    expect(box.paths()).toEqual([]);
  });

  test('output is bounded, and frames that a program prints are text', { timeout: MS }, async () => {
    const endless = result(await sandbox().bash('python3 -c "while True: print(\'x\' * 1000)"', SECONDS));
    expect(endless.stdout.length).toBeLessThanOrEqual(30_000);
    expect(endless.stderr).toContain('output was cut');
    const framed = result(
      await sandbox().bash(
        python('import os\nos.write(1, b"\\0\\0\\0\\x02\\0\\0\\0\\0{}")\nos.write(2, b"out of memory")'),
      ),
    );
    expect(framed).toMatchObject({ stderr: 'out of memory', exitCode: 0 });
  });

  test('a fault of the interpreter ends the program, and not the call', { timeout: MS }, async () => {
    const script = 'python3 -c "import os; os.abort()"; echo $?; python3 -c "print(1)"';
    expect(result(await sandbox().bash(script))).toMatchObject({ stdout: '134\n1\n', exitCode: 0 });
  });

  test('there is neither unless the sandbox asks for it', { timeout: MS }, async () => {
    const box = sandbox(false);
    const { stdout } = result(await box.bash('python3 -c "print(1)"; echo $?; python -V; echo $?'));
    expect(stdout).toBe('127\n127\n');
    expect(result(await box.bash('sqlite3 :memory: "select 1"')).stdout).not.toBe('1\n');
  });

  test.each(BOMBS.filter(([name]) => !EVERYWHERE.has(name)))(
    'memory ends the call, and says so: %s',
    { timeout: MS },
    async (_, script) => {
      expect(await endOf(sandbox, script)).toEqual(OUT_OF_MEMORY);
    },
  );
});
