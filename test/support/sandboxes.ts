import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { dirname, join } from 'node:path';
import { EMPTY_MANIFEST, WORKSPACE_LIMITS } from '#src/domain/sandbox/manifest.ts';
import type { WorkspaceLimits, WorkspaceManifest } from '#src/domain/sandbox/manifest.ts';
import type { SandboxToolCall } from '#src/domain/sandbox/tools.ts';
import type { ContentStore, SandboxAnswer, SandboxDriver, WebAccess } from '#src/drivers/sandbox/port.ts';
import { openVirtualSandboxes } from '#src/drivers/sandbox/virtual.ts';
import type { VirtualOptions } from '#src/drivers/sandbox/virtual.ts';
import { PROGRAM } from './program.ts';

const CHILD = join(dirname(PROGRAM), 'sandbox/child.mjs');

/** Runs until it is ended, whatever the interpreter allows. */
export const ENDLESS_SCRIPT = 'while true; do x=$(seq 1 99999); done';

/** The child of the program that is tested. */
export const CHILD_PROGRAM = { node: process.execPath, file: CHILD, readable: [dirname(CHILD)] };

/** The driver as the app makes it. */
export function virtualSandboxes(options: Partial<VirtualOptions> = {}): SandboxDriver {
  return openVirtualSandboxes({
    program: CHILD_PROGRAM,
    children: 4,
    childrenPerTenant: 2,
    childrenIdle: 8,
    memoryMiB: 256,
    bubblewrap: 'off',
    path: undefined,
    log: () => undefined,
    ...options,
  });
}

/** How a child can be confined on this machine: bubblewrap is tried where it is installed and may do its work. */
export function confinements(): ('off' | 'required')[] {
  try {
    execFileSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', '/bin/true'], { stdio: 'ignore' });
    return ['off', 'required'];
  } catch {
    return ['off'];
  }
}

/** Bytes in memory; says which were read. */
export class MemoryContents implements ContentStore {
  readonly bytes = new Map<string, Uint8Array>();
  readonly reads: string[] = [];

  async read(sha256: string): Promise<Uint8Array> {
    this.reads.push(sha256);
    const bytes = this.bytes.get(sha256);
    if (bytes === undefined) throw new Error('these bytes were never kept');
    return await Promise.resolve(bytes);
  }

  async write(sha256: string, bytes: Uint8Array): Promise<void> {
    if (createHash('sha256').update(bytes).digest('hex') !== sha256) throw new Error('the hash is of other bytes');
    this.bytes.set(sha256, Uint8Array.from(bytes));
    await Promise.resolve();
  }
}

/** One sandbox over a driver: keeps its files from call to call. */
export class TestSandbox {
  files: WorkspaceManifest = EMPTY_MANIFEST;
  readonly contents = new MemoryContents();
  readonly driver: SandboxDriver;
  readonly tenant: string;
  limits: WorkspaceLimits = WORKSPACE_LIMITS;
  web: WebAccess | null = null;
  python = false;

  constructor(driver: SandboxDriver, tenant = 'tn_a') {
    this.driver = driver;
    this.tenant = tenant;
  }

  async call(tool: SandboxToolCall, signal: AbortSignal = new AbortController().signal): Promise<SandboxAnswer> {
    const { tenant, files, contents, limits, python, web } = this;
    const answer = await this.driver.run({ tenant, tool, files, contents, limits, python, web }, signal);
    if (answer.outcome === 'completed' && answer.files !== null) this.files = answer.files;
    return answer;
  }

  async bash(command: string, timeoutSeconds?: number, signal?: AbortSignal): Promise<SandboxAnswer> {
    const input = timeoutSeconds === undefined ? { command } : { command, timeoutSeconds };
    return await this.call({ name: 'bash', input }, signal);
  }

  /** The text of a file as it is kept. */
  text(path: string): string | undefined {
    const sha256 = this.files.files.find((file) => file.path === path)?.sha256;
    const bytes = sha256 === undefined ? undefined : this.contents.bytes.get(sha256);
    return bytes === undefined ? undefined : new TextDecoder().decode(bytes);
  }

  paths(): string[] {
    return this.files.files.map(({ path }) => path);
  }
}
