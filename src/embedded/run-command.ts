import { execFile } from 'node:child_process';

/** The operating-system account a child runs under; only root can choose one. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** What a finished command left behind. `code` is null when it was killed, `failure` says why it did not end with 0. */
export interface CommandResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  readonly failure: string | undefined;
}

/** Bounds and environment of a command. Without `env` it gets a bare PATH, HOME and the C locale, so that output is parseable. */
export interface CommandOptions {
  readonly timeoutMs: number;
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly account?: Account | undefined;
}

/**
 * The process's environment, read in this one place of `embedded`: where programs and caches are depends on the machine
 * and is not a setting of the Host.
 */
export function machineEnvironment(): Readonly<Record<string, string | undefined>> {
  // oxlint-disable-next-line node/no-process-env -- see above; settings come from app/config.ts
  return process.env;
}

/** The environment a child needs, no more: the Host's own may hold secrets. */
export function bareEnvironment(extra: readonly string[] = []): Record<string, string> {
  const result: Record<string, string> = { LC_ALL: 'C' };
  const env = machineEnvironment();
  for (const name of ['PATH', 'HOME', 'TMPDIR', 'TZ', ...extra]) {
    const value = env[name];
    if (value !== undefined) result[name] = value;
  }
  return result;
}

/** Runs a program to its end, bounded. Never rejects: a missing program, a non-zero code and a timeout are all `failure`. */
export function runCommand(file: string, args: readonly string[], options: CommandOptions): Promise<CommandResult> {
  return new Promise((resolve) => {
    const settings = {
      timeout: options.timeoutMs,
      killSignal: 'SIGKILL' as const,
      encoding: 'utf8' as const,
      maxBuffer: 16 * 1024 * 1024,
      env: options.env ?? bareEnvironment(),
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      ...(options.account === undefined ? {} : { uid: options.account.uid, gid: options.account.gid }),
    };
    const done = (error: Error | null, stdout: string, stderr: string): void => {
      if (error === null) return resolve({ code: 0, stdout, stderr, failure: undefined });
      const code = 'code' in error && typeof error.code === 'number' ? error.code : null;
      const killed = 'killed' in error && error.killed === true;
      const lastLine = stderr.trim().split('\n').at(-1) ?? '';
      const failure = killed
        ? `no end within ${Math.round(options.timeoutMs / 1000)} s`
        : lastLine || (error.message.split('\n')[0] ?? 'failed');
      resolve({ code, stdout, stderr, failure });
    };
    try {
      execFile(file, args, settings, done);
    } catch (error) {
      resolve({ code: null, stdout: '', stderr: '', failure: error instanceof Error ? error.message : String(error) });
    }
  });
}
