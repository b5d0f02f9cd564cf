import type { WorkspaceLimits } from '../../domain/sandbox/manifest.ts';

/** A script for a child, with the files that it may read. */
export interface RunMessage {
  readonly type: 'run';
  readonly command: string;
  /** Path, size and mode; a file is asked for by its place in this list. */
  readonly files: readonly (readonly [path: string, size: number, mode: number])[];
  readonly directories: readonly string[];
  readonly limits: WorkspaceLimits;
  readonly python: boolean;
  /** Whether `curl` exists. */
  readonly web: boolean;
  /** ms since the epoch: the Host tells a child the time. */
  readonly now: number;
}

/** Bytes of a file that the child has asked for, in the body. */
export interface ContentMessage {
  readonly type: 'content';
  readonly file: number;
}

/** The outcome of a request to the web; its body is in the body. */
export interface WebMessage {
  readonly type: 'web';
  readonly request: number;
  readonly answer:
    | {
        readonly status: number;
        readonly statusText: string;
        readonly headers: Record<string, string>;
        readonly url: string;
      }
    | { readonly error: string };
}

export type ToChild = RunMessage | ContentMessage | WebMessage;

/** Where the bytes of a file are: in the list that the child was given, or in a `bytes` message, both by number. */
export type FileSource = { readonly given: number } | { readonly sent: number };

export type FromChild =
  | { readonly type: 'ready' }
  | { readonly type: 'read'; readonly file: number }
  | {
      readonly type: 'web';
      readonly request: number;
      readonly method: string;
      readonly url: string;
      readonly headers: Record<string, string>;
    }
  /** Bytes of a new or changed file, in the body; the first has the number 0, the next 1. */
  | { readonly type: 'bytes' }
  /** A limit that the script has exceeded, in words for the model. Nothing of the call is kept. */
  | { readonly type: 'exceeded'; readonly message: string; readonly cpuMs: number }
  | {
      readonly type: 'done';
      readonly stdout: string;
      readonly stderr: string;
      readonly truncated: boolean;
      readonly exitCode: number;
      readonly cpuMs: number;
      /** All files; null: the same as before. */
      readonly files: readonly (readonly [path: string, mode: number, source: FileSource])[] | null;
      readonly directories: readonly string[];
    };
