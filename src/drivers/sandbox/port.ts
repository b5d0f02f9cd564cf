import type { WorkspaceLimits, WorkspaceManifest } from '../../domain/sandbox/manifest.ts';
import type { SandboxFailure, SandboxResults, SandboxToolCall } from '../../domain/sandbox/tools.ts';

/** The bytes of files, by their hash (SHA-256, hexadecimal). */
export interface ContentStore {
  /** The bytes of a file of the manifest that the call was given. What it throws ends the call with that error. */
  read(sha256: string): Promise<Uint8Array>;
  /**
   * Stores bytes that a call has made. It is awaited before the call is answered, so a manifest never names what is
   * missing; if the call fails after all, no manifest names what was stored.
   */
  write(sha256: string, bytes: Uint8Array): Promise<void>;
}

/** A request that a command makes through the Host. Header names are in lower case. */
export interface WebRequest {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | null;
}

export interface WebResponse {
  readonly status: number;
  readonly statusText: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  /** After redirects. */
  readonly url: string;
}

/**
 * The way out of a sandbox, which decides by itself what may be reached and adds credentials that the command must not see.
 * @throws with a message that the command may see
 */
export type WebAccess = (request: WebRequest, signal: AbortSignal) => Promise<WebResponse>;

/** One call of a tool on the files of a sandbox. */
export interface SandboxCall {
  /** The tenant whose share of the node it uses, and with which it may share a process. */
  readonly tenant: string;
  readonly tool: SandboxToolCall;
  /** The files as they are before the call. */
  readonly files: WorkspaceManifest;
  readonly contents: ContentStore;
  readonly limits: WorkspaceLimits;
  /** Whether `python3` and `sqlite3` exist. */
  readonly python: boolean;
  /** Absent or null: there is no network. */
  readonly web?: WebAccess | null;
}

/** What a call took, whether it went well or not. */
export interface SandboxUsage {
  /** From the moment it had a place to run until it ended, ms; the wait before is in `queuedMs`. */
  readonly durationMs: number;
  readonly queuedMs: number;
  readonly cpuMs: number;
  /** Bytes of files that are new or changed. */
  readonly bytesWritten: number;
}

/** How a call ended, with what it took. */
export type SandboxAnswer =
  | {
      readonly outcome: 'completed';
      readonly result: SandboxResults[SandboxToolCall['name']];
      /** The files as they are after it; null: as they were. */
      readonly files: WorkspaceManifest | null;
      readonly usage: SandboxUsage;
    }
  | {
      /** `timeout`: its time ran out. `killed`: it had to be ended for another reason. Nothing has changed. */
      readonly outcome: 'failed' | 'timeout' | 'killed';
      readonly code: SandboxFailure;
      /** Tells the model what to do. */
      readonly message: string;
      readonly usage: SandboxUsage;
    };

/** The node cannot run commands now; the call had no effect and can be repeated. */
export class SandboxUnavailableError extends Error {
  override readonly name = 'SandboxUnavailableError';
}

/**
 * Runs tools on files that are given by a manifest and read when they are needed. Guarantees, checked by
 * test/conformance/sandbox.ts:
 * - a call sees the files of its manifest and nothing else: no file, variable, process or network of the Host, and no other
 *   tenant. What it does to them is in its answer, whole or not at all.
 * - a call that is too large, takes too long or never ends is a failed answer, and costs other tenants nothing but their
 *   equal share of the node.
 * - it keeps nothing: the same call on the same files does the same again, on any node.
 */
export interface SandboxDriver {
  /**
   * Settles with an answer. Rejects with the signal's reason when it aborts (the call is ended first), with what
   * `contents` throws, and with SandboxUnavailableError when no process can be had.
   */
  run(call: SandboxCall, signal: AbortSignal): Promise<SandboxAnswer>;
  /** Whether calls can be made on this node, and what confines them, for people; cheap. */
  status(): SandboxStatus;
  /** Ends all calls and processes; calls in progress reject with SandboxUnavailableError. */
  stop(): Promise<void>;
}

export interface SandboxStatus {
  readonly available: boolean;
  /** Around the process of a command besides its own lack of rights. */
  readonly confinement: 'bubblewrap' | 'none';
  /** Processes that run commands, those of them that are busy, and calls that wait. */
  readonly children: number;
  readonly busy: number;
  readonly waiting: number;
}
