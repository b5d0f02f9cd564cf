import type { Duplex, Readable } from 'node:stream';
import type { WorkspaceLimits, WorkspaceManifest } from '../../domain/sandbox/manifest.ts';
import type { SandboxFailure, SandboxResults, SandboxToolCall } from '../../domain/sandbox/tools.ts';
import { UnavailableError } from '../../lib/unavailable.ts';

/** The bytes of files, by their hash (SHA-256, hexadecimal). */
export interface ContentStore {
  /** The bytes of a file of the manifest that the call was given. What it throws ends the call with that error. */
  read(sha256: string): Promise<Uint8Array>;
  /**
   * Brings bytes that a call has made to the store. They may still be on their way when it returns: who records the manifest
   * waits for them first, so that it never names what is missing; if the call fails after all, no manifest names them.
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

/** A request whose body is sent as it comes. */
export interface WebStreamRequest extends Omit<WebRequest, 'body'> {
  /** One that is held whole can be sent again, when a credential has to be renewed. */
  readonly body: Uint8Array | AsyncIterable<Uint8Array> | null;
  /** Bytes of the body, where that is known before it ends. */
  readonly length: number | null;
}

export interface WebStreamResponse extends Omit<WebResponse, 'body'> {
  /** To be read to its end, or ended early. */
  readonly body: AsyncIterable<Uint8Array>;
}

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

/** Commands cannot be run now; the call had no effect and can be repeated. */
export class SandboxUnavailableError extends UnavailableError {
  override readonly name = 'SandboxUnavailableError';

  constructor(message: string, options?: ErrorOptions) {
    super('sandboxes', message, options);
  }
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

/** The volume of a pod: a directory or disk that is its workspace. A sandbox that is reset has another. */
export interface PodVolume {
  readonly tenant: string;
  readonly sandboxId: string;
  /** Position of the sandbox's creation: a later one with the same id has other volumes. */
  readonly createdPosition: number;
  readonly generation: number;
}

/** What the commands of a pod may use. */
export interface PodLimits {
  readonly cpus: number;
  readonly memoryBytes: number;
  readonly storageBytes: number;
}

/** The machine of a pod. */
export interface PodMachine {
  readonly limits: PodLimits;
  /** Absent: the first of the driver's. */
  readonly image?: string | undefined;
  /** Whether its calls are given a network; absent: they are not. */
  readonly hasNetwork?: boolean;
  readonly hostEpoch: number;
}

export interface WantedMachine {
  readonly desired: 'running' | 'suspended';
  readonly hostEpoch: number;
}

/** What a volume begins with. */
export interface FirstFiles {
  readonly manifest: WorkspaceManifest;
  readonly contents: Pick<ContentStore, 'read'>;
}

/** The way out of a pod: decides by itself what may be reached, and adds credentials that the pod must not see. */
export interface PodNetwork {
  /** A request in the clear, as proxies are sent them. @throws with a message that the command may see */
  readonly web: (request: WebStreamRequest, signal: AbortSignal) => Promise<WebStreamResponse>;
  /** A connection for what the Host cannot read. @throws with a message that the command may see */
  readonly connect: (target: { readonly host: string; readonly port: number }) => Promise<Duplex>;
}

/** One call of a tool in a pod. */
export interface PodCall {
  readonly volume: PodVolume;
  readonly tool: SandboxToolCall;
  readonly limits: PodLimits;
  /** Bytes of a file that the other tools than bash read or write. */
  readonly fileBytes: number;
  /** A command with lower ones is ended before this one begins; this one is refused where there are higher ones. */
  readonly fence: { readonly hostEpoch: number; readonly epoch: number };
  /** Null: there is no network. */
  readonly network: PodNetwork | null;
}

/** Whether pods can run on this node, and what is missing otherwise, for people. */
export type PodStatus =
  | { readonly available: true; readonly backend: string }
  | { readonly available: false; readonly backend: null; readonly reason: string };

/** The volume of a pod is not on this machine: its files are lost, or on another one. */
export class VolumeLostError extends Error {
  override readonly name = 'VolumeLostError';
}

/** A file of a pod. */
export interface PodFile {
  readonly path: string;
  readonly size: number;
  readonly sha256: string;
}

/** Files of a volume between calls. A link is never followed. @throws VolumeLostError */
export interface PodFiles {
  /** Sorted by path, below a directory or all; null: there are more than can be listed. */
  list(volume: PodVolume, under: string): Promise<readonly PodFile[] | null>;
  /** A file without its bytes; null: there is none. */
  stat(volume: PodVolume, path: string): Promise<PodFile | null>;
  /** Null: there is no such file. `end` is part of the range. */
  open(
    volume: PodVolume,
    path: string,
    range?: { readonly start: number; readonly end: number },
  ): Promise<Readable | null>;
  /** `refused`: a file, a link or a directory is in the way. `full`: the volume would have more than it may. */
  write(volume: PodVolume, file: PodUpload): Promise<'written' | 'refused' | 'full'>;
  /** False: nothing is there. */
  remove(volume: PodVolume, path: string): Promise<boolean>;
}

export interface PodUpload {
  readonly path: string;
  readonly bytes: Uint8Array;
  readonly storageBytes: number;
}

/**
 * Runs tools on a volume that stays from call to call. Guarantees, checked by test/conformance/pod.ts:
 * - a command sees its volume, the programs of its image and nothing else: no file, variable, process or network of the
 *   Host, and no other pod. What it has written stays, however it ended.
 * - nothing runs between calls: what a command leaves in the background ends with it. With the Host it ends at once, or, where
 *   it is on another machine, at its deadline or with the next command.
 * - of two commands of a pod, the one with the higher fence runs.
 */
export interface PodDriver {
  /** What the spec of a pod may name as its image; none: pods have the programs of the machine. */
  readonly images: readonly string[];
  /** Why pods cannot be let out to some hosts, for people; null: they can. */
  readonly noNetwork: string | null;
  /** Found out now and then. */
  status(): Promise<PodStatus>;
  /** Makes the volume with its first files, unless it is there, and starts the machine. @throws SandboxUnavailableError */
  provision(volume: PodVolume, machine: PodMachine, first: FirstFiles): Promise<void>;
  /** Whether the volume is there. */
  has(volume: PodVolume): Promise<boolean>;
  /**
   * Settles with an answer whose `files` is null. Rejects with the signal's reason when it aborts (the call is ended
   * first), with VolumeLostError, and with SandboxUnavailableError when the call had no effect and can be repeated.
   */
  run(call: PodCall, signal: AbortSignal): Promise<SandboxAnswer>;
  readonly files: PodFiles;
  /** Brings the machine to what is wanted of it; one that runs for a newer epoch is left alone. */
  settle(volume: PodVolume, wanted: WantedMachine): Promise<void>;
  /** All volumes that are there. */
  volumes(): Promise<readonly PodVolume[]>;
  /** Removes a volume with its files; no call of it runs, and none comes. */
  discard(volume: PodVolume): Promise<void>;
  /** Ends all calls; those in progress reject with SandboxUnavailableError. */
  stop(): Promise<void>;
}
