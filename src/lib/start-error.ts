/** What a script can tell apart by the exit code (docs/cli.md). */
export const EXIT = {
  /** The Host refused, a turn did not complete, a check found something, a file cannot be used. */
  failed: 1,
  /** The command line is not one that there is. */
  misused: 2,
  /** No Host answers. */
  unreachable: 3,
  /** There is no context, or its key is not accepted. */
  notSignedIn: 4,
  /** Ctrl-C. */
  interrupted: 130,
} as const;

/**
 * A reason not to start, or not to continue, that the person at the terminal can act on. The message is one plain line: what is wrong, and
 * what to do. `main` prints it without a stack and exits with `exitCode`; anything else that is thrown is a defect and keeps its stack.
 */
export class StartError extends Error {
  override readonly name = 'StartError';
  readonly exitCode: number;
  /** What a program can tell apart: the code of a refusal, or what went wrong here. */
  readonly code: string;

  constructor(
    message: string,
    { cause, exitCode = EXIT.failed, code = 'failed' }: ErrorOptions & { exitCode?: number; code?: string } = {},
  ) {
    super(message, cause === undefined ? {} : { cause });
    this.exitCode = exitCode;
    this.code = code;
  }
}

/** @throws StartError for a command line that does not fit */
export function misuse(message: string, cause?: unknown): never {
  throw new StartError(message, { cause, exitCode: EXIT.misused, code: 'misused' });
}
