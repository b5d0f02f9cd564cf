import type { McpServerManifest } from '../../agent/mcp-servers.ts';
import { optional } from '../../kernel/optional.ts';
import type { TurnContext } from '../context.ts';
import type { McpServerState, McpTool } from '../mcp-events.ts';
import type { Running } from '../running.ts';
import { declaredNames } from './declared-names.ts';
import { failThread } from './ending.ts';
import { hold } from './hold.ts';
import type { Step } from './step.ts';

/** Tools of MCP servers that one model is shown, and the size of their declarations in characters of JSON text. */
export const MCP_TOOLS_MAX = 128;
export const MCP_DECLARATIONS_CHARS_MAX = 262_144;
/** Names that the event of a server's state has. */
const NAMES_SHOWN = 128;
const REASON_CHARS = 500;
const NAME_CHARS = 64;

/** What a server said when it was asked for its tools. */
export type McpListed =
  | {
      readonly kind: 'tools';
      readonly tools: readonly McpTool[];
      /** Why some of its tools cannot be offered; null: all can. */
      readonly omitted: string | null;
    }
  | {
      readonly kind: 'needs_auth';
      readonly credential: RefusedCredential | null;
      readonly message: string;
    }
  | { readonly kind: 'unavailable'; readonly reason: string };

/** A credential that a server does not accept as it is. */
export interface RefusedCredential {
  readonly vaultId: string;
  readonly credentialId: string;
  /** How often people have given it tokens: with the next ones it is tried again. */
  readonly grants: number;
}

export interface ListedServer {
  readonly server: string;
  readonly listed: McpListed;
}

/** Before a thread's first model call in a turn: its worker lists the tools of its servers, once for the whole turn. */
export function listMcpTools(at: Running, context: TurnContext): Step {
  const { manifest, thread } = at;
  if (thread.mcp.tools !== null || (manifest.mcpServers ?? []).length === 0) return 'next';
  const held = hold(at, context);
  if (held !== 'next') return held;
  at.add({ type: 'mcp.tools.requested', data: at.stamp });
  return 'waits';
}

/**
 * Records what the servers of a thread have said. Without a server that the agent requires the thread fails, or waits
 * for a person to sign in; without any other it continues.
 */
export function settleListing(at: Running, listed: readonly ListedServer[]): Step {
  if (!at.thread.mcp.listing) return 'waits';
  const servers = at.manifest.mcpServers ?? [];
  const found = servers.map((server) => ({
    server,
    listed: listed.find((one) => one.server === server.name)?.listed ?? notAsked,
  }));
  const offered = offer(at, found);
  for (const { server, listed: one } of found) noteState(at, server.name, stateOf(one, offered.get(server.name)));
  const required = found.filter(({ server }) => server.required !== false);
  for (const { server, listed: one } of required) {
    if (one.kind === 'unavailable') return failWithout(at, server.name, one.reason);
  }
  for (const { server, listed: one } of required) {
    if (one.kind === 'needs_auth') return askToSignIn(at, { server: server.name, callId: null, ...one });
  }
  const recorded = [...offered].map(([server, { tools }]) => ({
    server,
    tools: isKnown(at, server, tools) ? null : [...tools],
  }));
  at.add({ type: 'mcp.tools.listed', data: { ...at.stamp, agentId: at.agentId, servers: recorded } });
  return 'next';
}

const notAsked: McpListed = { kind: 'unavailable', reason: 'It was not asked.' };

/** Ends a thread that cannot do without a server. */
export function failWithout(at: Running, server: string, reason: string): Step {
  const message = `The MCP server ${server} is not available: ${reason}`;
  return failThread(at, { code: 'mcp_unavailable', message });
}

interface ServerIs {
  readonly state: McpServerState;
  readonly tools?: readonly McpTool[];
  readonly reason?: string | undefined;
}

function stateOf(listed: McpListed, offered: Offered | undefined): ServerIs {
  switch (listed.kind) {
    case 'tools':
      return { state: 'connected', tools: offered?.tools ?? [], reason: offered?.omitted ?? undefined };
    case 'needs_auth':
      return { state: 'needs_auth', reason: listed.message };
    case 'unavailable':
      return { state: 'unavailable', reason: listed.reason };
  }
}

/** Tells the history how a server is, unless it has said so before. */
export function noteState(at: Running, server: string, { state, tools, reason: full }: ServerIs): void {
  const { agentId } = at;
  const known = at.session.mcp?.[mcpKey(agentId, server)];
  const reason = full === undefined ? undefined : [...full].slice(0, REASON_CHARS).join('');
  const isSame = known?.state === state && known.reason === (reason ?? null);
  if (isSame && (tools === undefined || isKnown(at, server, tools))) return;
  const counted =
    tools === undefined ? {} : { toolCount: tools.length, tools: tools.slice(0, NAMES_SHOWN).map(({ name }) => name) };
  at.add({ type: 'mcp.state', data: { ...at.stamp, agentId, server, state, ...counted, ...optional({ reason }) } });
}

/** By agent: the manifests of two agents may name different servers alike. */
export function mcpKey(agentId: string, server: string): string {
  return `${agentId} ${server}`;
}

function isKnown(at: Running, server: string, tools: readonly McpTool[]): boolean {
  const known = at.session.mcp?.[mcpKey(at.agentId, server)]?.tools ?? null;
  return (
    known !== null &&
    known.length === tools.length &&
    tools.every(({ name, digest }, i) => known[i]?.name === name && known[i].digest === digest)
  );
}

interface Offered {
  readonly tools: readonly McpTool[];
  readonly omitted: string | null;
}

/** The tools that the models of the thread are shown: with unique names, and not more than they can read. */
function offer(
  at: Running,
  found: readonly { readonly server: McpServerManifest; readonly listed: McpListed }[],
): ReadonlyMap<string, Offered> {
  const taken = new Set(declaredNames(at.manifest));
  const offered = new Map<string, Offered>();
  let [count, chars] = [0, 0];
  for (const { server, listed } of found) {
    if (listed.kind !== 'tools') continue;
    const tools: McpTool[] = [];
    for (const tool of listed.tools) {
      const size = JSON.stringify(tool).length;
      if (count >= MCP_TOOLS_MAX || chars + size > MCP_DECLARATIONS_CHARS_MAX) continue;
      const name = uniqueName(tool.name, taken);
      taken.add(name);
      count += 1;
      chars += size;
      tools.push({ ...tool, name });
    }
    const left = listed.tools.length - tools.length;
    const tooMany = `${left} of its tools are left out: an agent is shown ${MCP_TOOLS_MAX} tools of MCP servers, in ${MCP_DECLARATIONS_CHARS_MAX} characters, at most.`;
    const omitted = [...(listed.omitted === null ? [] : [listed.omitted]), ...(left === 0 ? [] : [tooMany])].join(' ');
    offered.set(server.name, { tools, omitted: omitted === '' ? null : omitted });
  }
  return offered;
}

function uniqueName(name: string, taken: ReadonlySet<string>): string {
  let unique = name;
  for (let n = 2; taken.has(unique); n++) unique = `${name.slice(0, NAME_CHARS - String(n).length - 1)}_${n}`;
  return unique;
}

/** Asks a person to sign in to a server; after the sign-in, or an answer, the thread tries again. */
export function askToSignIn(
  at: Running,
  {
    server,
    callId,
    credential,
    message,
  }: {
    readonly server: string;
    /** Null: the tools could not even be listed. */
    readonly callId: string | null;
    readonly credential: RefusedCredential | null;
    readonly message: string;
  },
): Step {
  const { agentId, stamp } = at;
  const how =
    credential === null
      ? 'Save a credential for its address in a vault that the session names, then respond.'
      : 'Sign in with the credential, or rotate it: the turn then continues by itself.';
  const prompt = `The MCP server ${server} wants a sign-in. ${message} ${how}`;
  const asked = { interactionId: at.nextId('in'), kind: 'question', agentId, server, prompt } as const;
  const about = { ...credential, ...(callId === null ? {} : { callId }) };
  at.add({ type: 'interaction.opened', data: { ...stamp, ...asked, ...about } });
  return 'waits';
}
