/** JSON as a server sent it: bounded in size, otherwise not trusted. */
export type McpObject = Readonly<Record<string, unknown>>;

/** A server as a turn of a session sees it. */
export interface McpServer {
  readonly tenant: string;
  /** Connections are never shared by sessions: older servers keep state in them. */
  readonly sessionId: string;
  /** For the audit trail of credentials; null: outside of a turn. */
  readonly turnId: string | null;
  /** The vaults whose credentials may be sent, in the session's order. */
  readonly vaultIds: readonly string[];
  /** Its name in the manifest: the prefix of its tools' names. */
  readonly name: string;
  readonly url: string;
  /** From the manifest; those that HTTP, the protocol or a vault credential sets are not sent. */
  readonly headers: Readonly<Record<string, string>>;
  /** The tools (by the server's names) that the manifest wants; null: all. */
  readonly only: readonly string[] | null;
}

/** A declaration that passed every check; what did not is in `McpTools.refused`. */
export interface McpTool {
  /**
   * As the model sees it: `<server>_<tool>`, `[A-Za-z0-9_-]{1,64}`, unique among the tools of this server and a function
   * of the two names alone. Another server's tool may have the same name.
   */
  readonly name: string;
  /** As the server calls it; what `McpCall.tool` takes. */
  readonly tool: string;
  /** Cut to a limit; '' when the server gives none. */
  readonly description: string;
  /** A JSON Schema of an object that compiles. */
  readonly inputSchema: McpObject;
  /** Null: none, or one that does not compile (structured content is then not checked). */
  readonly outputSchema: McpObject | null;
  /** What the server says about it (a hint, no promise). Absent hints count as the less harmless value. */
  readonly readOnly: boolean;
  readonly idempotent: boolean;
  readonly destructive: boolean;
  /** SHA-256 of the whole declaration before cuts, hexadecimal: another one means that an approval has to be asked again. */
  readonly digest: string;
}

export interface McpTools {
  readonly kind: 'tools';
  /** Sorted by the server's names, so that a model's request is the same on each node. */
  readonly tools: readonly McpTool[];
  /** Tools that cannot be offered and why, for people; 20 at most. */
  readonly refused: readonly { readonly tool: string; readonly reason: string }[];
  /** How many in all, `refused` included. */
  readonly refusedCount: number;
  /** The protocol revision that was agreed. */
  readonly revision: string;
}

/**
 * The server wants a person's credential: there is none for the address, it is refused and could not be refreshed, or it
 * lacks a scope. Nothing was called.
 */
export interface McpNeedsAuth {
  readonly kind: 'needs_auth';
  /** The credential that has to be renewed; null: no vault of the session has one for the address. */
  readonly credential: McpCredential | null;
  readonly message: string;
}

/** A credential of a vault, as it was when it was sent. */
export interface McpCredential {
  readonly vaultId: string;
  readonly credentialId: string;
  /** How often people have given it tokens. */
  readonly grants: number;
}

/**
 * The server cannot be reached, or says that it is too busy, after retries. Nothing was called, or the tool says that it
 * may be called again: it can be repeated.
 */
export interface McpUnavailable {
  readonly kind: 'unavailable';
  /** For the history: ours, never a text of the server. */
  readonly reason: string;
  /** When the server says when to come back, ms. */
  readonly retryAfterMs: number | null;
}

export type McpListing = McpTools | McpNeedsAuth | McpUnavailable;

/** What a server asks a person in the middle of a call. Texts and schema are the server's, bounded. */
export type McpQuestion =
  | {
      readonly mode: 'form';
      readonly message: string;
      /** A flat JSON Schema of an object that compiles; an accepted answer's content has to match it. */
      readonly schema: McpObject;
    }
  /** The person does something at an address (https, or http on loopback); the answer has no content. */
  | { readonly mode: 'url'; readonly message: string; readonly url: string };

export interface McpAnswer {
  readonly action: 'accept' | 'decline' | 'cancel';
  /** Only with `accept` of a form. */
  readonly content?: McpObject | undefined;
}

export interface McpCall {
  /** The server's own name of the tool. */
  readonly tool: string;
  readonly input: McpObject;
  readonly effectId: string;
  /** Waiting for a place, retries and a refresh of the token included, ms since the epoch. */
  readonly deadline: number;
  /** What the caller (or an approval) saw; another declaration is `changed` and nothing is called. Null: any. */
  readonly digest: string | null;
  /** The answer to the question that the call ended in, with its `state`; absent: the call starts. */
  readonly resume?: { readonly state: string; readonly answer: McpAnswer };
}

export interface McpProgress {
  readonly progress: number;
  readonly total: number | null;
  /** Cut to 500 characters. */
  readonly message: string | null;
}

export interface McpCallOptions {
  /** Aborts the call: the server is told, the promise rejects with the signal's reason. The effect may have happened. */
  readonly signal: AbortSignal;
  /** At most ten times a second. What it throws ends nothing. */
  readonly onProgress?: (progress: McpProgress) => void;
  /**
   * Answers a question of a server of an older revision, which keeps the call open meanwhile. Absent: the question is
   * cancelled, and the result is an error that says so.
   */
  readonly onQuestion?: (question: McpQuestion, signal: AbortSignal) => Promise<McpAnswer>;
}

export type McpContent =
  | { readonly type: 'text'; readonly text: string }
  /** An image or a sound. */
  | { readonly type: 'media'; readonly contentType: string; readonly bytes: Uint8Array }
  /** A file in the result: text (UTF-8) or not, always as bytes. */
  | { readonly type: 'resource'; readonly uri: string; readonly contentType: string | null; readonly bytes: Uint8Array }
  /** A file that the server would show; it is not read. */
  | { readonly type: 'link'; readonly uri: string; readonly name: string; readonly contentType: string | null };

/** Why a call has no result. */
export type McpFailure =
  /** The deadline came. */
  | 'timeout'
  /** The server answered what the protocol or the tool's own schema does not allow. */
  | 'invalid_answer'
  /** The answer is larger than a result may be. */
  | 'too_large'
  /** The connection broke in the middle, or the server failed. */
  | 'lost'
  /** The server refused the request (unknown tool, invalid input, 4xx). */
  | 'refused'
  /** Its declaration is no longer the one of `digest`, or it is gone. */
  | 'changed'
  /** `resume` cannot be used: not of this tool, or damaged. */
  | 'invalid_state'
  /** This Host may not call the address, or the address redirects. */
  | 'address_refused';

export type McpOutcome =
  /** The server has answered: the effect has happened, or, with `isError`, what the server says has. */
  | {
      readonly kind: 'result';
      /** 256 parts at most; with `structured` 8 MiB at most. */
      readonly content: readonly McpContent[];
      /** Matches the tool's `outputSchema`; an object, in revision 2026-07-28 any JSON; null: none. */
      readonly structured: unknown;
      readonly isError: boolean;
    }
  /**
   * The server asks before it continues (revision 2026-07-28): nothing is held, here or there. `state` and the answer let any
   * node continue, also after a restart, with `McpCall.resume`. Several questions of one round come one by one.
   * The call is not done; the effect counts as not happened.
   */
  | {
      readonly kind: 'input_required';
      readonly question: McpQuestion;
      /** 65,536 characters at most, and the answers so far. */ readonly state: string;
    }
  | McpNeedsAuth
  | McpUnavailable
  | {
      readonly kind: 'failed';
      readonly code: McpFailure;
      /** Tells the model what to do. */
      readonly message: string;
      /** Whether the effect may have happened; false: surely not. */
      readonly mayHaveHappened: boolean;
    };

/**
 * Calls the tools of servers that tenants name. Guarantees, checked by test/conformance/mcp.ts:
 * - Whatever a server sends, each promise settles: with an outcome by the deadline, or rejected with the signal's reason.
 * - Everything that a server sends is bounded before it is kept: bytes, tools, parts, messages, time.
 * - A credential goes to the origin and path that it was stored for, and nowhere else; no redirect is followed.
 * - Servers and tenants have shares of the node: one that hangs or floods delays its own calls.
 */
export interface McpDriver {
  /**
   * The tools of a server, at most `MCP_LISTING_MAX_AGE_MS` old, per tenant, server and credential.
   * @throws the signal's reason, and UnavailableError when the log or the secret store does not answer
   */
  list(server: McpServer, options: { readonly signal: AbortSignal; readonly deadline: number }): Promise<McpListing>;
  /** @throws as `list` */
  call(server: McpServer, call: McpCall, options: McpCallOptions): Promise<McpOutcome>;
  /** Closes all connections; calls in progress end as `failed` (`lost`). */
  stop(): Promise<void>;
}

/** How old a listing may be before the server is asked again, ms. */
export const MCP_LISTING_MAX_AGE_MS = 300_000;
