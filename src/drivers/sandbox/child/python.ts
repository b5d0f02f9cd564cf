import { defineCommand, latin1FromBytes } from 'just-bash';
import type { CustomCommand } from 'just-bash';
import { bytesOf, compiled, factoryOf, freeMemory, instantiator, outside, Written } from './emscripten.ts';
import type { Compiled, FileSystem, OnMemory } from './emscripten.ts';
import { closeMemory, TreeMount } from './tree-mount.ts';
import type { WorkspaceFs } from './workspace-fs.ts';

const OUTPUT_BYTES_MAX = 16_777_216;
/** As shells number a program that was ended by SIGABRT. */
const FAULT = 134;
/** Where Python looks for what it is not given by the files of the call. */
const HOME = '/usr';
const PROGRAM = '/usr/bin/python3';
/** Directories that are not of the call: its own are in the memory of the program. */
const SYSTEM = new Set(['bin', 'usr', 'lib', 'dev', 'proc', 'home']);

interface PythonModule {
  readonly FS: FileSystem;
  readonly ENV: Record<string, string | undefined>;
  callMain(arguments_: readonly string[]): unknown;
}

/** What stays of the program from call to call, none of which changes. */
let parts: { create: ReturnType<typeof factoryOf<PythonModule>>; module: Compiled; library: Uint8Array } | null = null;

async function partsOf() {
  parts ??= {
    create: factoryOf<PythonModule>('python.cjs'),
    module: await compiled('python.wasm'),
    library: bytesOf('python313.zip'),
  };
  return parts;
}

interface Run {
  readonly arguments: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly input: string;
}

interface Bounds {
  readonly memoryMiB: number;
  readonly onMemory: OnMemory;
}

/**
 * `python3`: CPython as WebAssembly, in the one thread of this process. Each run has an instance of its own, which sees the
 * files of the call, its input, and nothing else; there are no processes, threads or sockets in it.
 */
export function pythonCommands(fs: WorkspaceFs, bounds: Bounds): CustomCommand[] {
  return ['python3', 'python'].map((name) =>
    defineCommand(name, async (arguments_, context) => {
      const environment = context.exportedEnv ?? Object.fromEntries(context.env);
      const input = latin1FromBytes(context.stdin);
      const run = { arguments: arguments_, environment, cwd: context.cwd, input };
      return await outside(async () => await runPython(run, fs, bounds));
    }),
  );
}

async function runPython(run: Run, fs: WorkspaceFs, bounds: Bounds) {
  const [stdout, stderr] = [new Written(OUTPUT_BYTES_MAX), new Written(OUTPUT_BYTES_MAX)];
  const { exitCode, fault } = await ended(run, fs, bounds, { stdout, stderr });
  const cut = stdout.isFull || stderr.isFull ? `python3: output was cut after ${OUTPUT_BYTES_MAX} bytes\n` : '';
  return {
    stdout: stdout.buffer().toString('latin1'),
    stdoutKind: 'bytes' as const,
    stderr: stderr.buffer().toString('utf8') + fault + cut,
    exitCode,
  };
}

async function ended(run: Run, fs: WorkspaceFs, bounds: Bounds, output: { stdout: Written; stderr: Written }) {
  try {
    const python = await started(run, fs, bounds, output);
    const code = python.callMain(run.arguments);
    return { exitCode: typeof code === 'number' ? code & 0xff : 0, fault: '' };
  } catch (error) {
    const words = error instanceof Error ? error.message : 'failed';
    if (/memory|allocation/i.test(words)) return bounds.onMemory();
    return { exitCode: FAULT, fault: `python3: the interpreter has ended with a fault: ${words}\n` };
  }
}

async function started(run: Run, fs: WorkspaceFs, bounds: Bounds, output: { stdout: Written; stderr: Written }) {
  freeMemory();
  const { create, module, library } = await partsOf();
  let at = 0;
  return await create()({
    noInitialRun: true,
    thisProgram: PROGRAM,
    instantiateWasm: instantiator(module, bounds.memoryMiB, bounds.onMemory),
    quit: (_status: number, error: unknown) => {
      throw error;
    },
    print: () => undefined,
    printErr: () => undefined,
    preRun: [
      (python: PythonModule) => {
        const { FS, ENV } = python;
        FS.init(
          () => (at < run.input.length ? run.input.charCodeAt(at++) : null),
          (byte) => output.stdout.add(byte),
          (byte) => output.stderr.add(byte),
        );
        FS.mkdirTree(`${HOME}/lib`);
        FS.writeFile(`${HOME}/lib/python313.zip`, library);
        Object.assign(ENV, run.environment, { PYTHONHOME: HOME, _: PROGRAM });
        const mount = new TreeMount(FS, fs);
        for (const [name, { kind }] of fs.tree.root.entries) {
          if (kind !== 'directory' || SYSTEM.has(name)) continue;
          FS.mkdirTree(`/${name}`);
          FS.mount(mount, {}, `/${name}`);
        }
        closeMemory(FS);
        FS.chdir(fs.tree.find(run.cwd)?.kind === 'directory' ? run.cwd : '/');
      },
    ],
  });
}
