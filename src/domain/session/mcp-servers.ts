import type { KnownMcpServer, KnownMcpServers } from '../turn/running.ts';
import { mcpKey } from '../turn/steps/mcp-listing.ts';
import type { SessionEvent } from './events.ts';

/** Servers that a session remembers; of more, those listed longest ago are recorded again. */
const SERVERS_KEPT = 32;

type ListedEvent = Extract<SessionEvent, { type: 'mcp.tools.listed' }>;

/** The event with the tools that it leaves out, since the session has recorded them before. */
export function withKnownTools(known: KnownMcpServers | undefined, event: ListedEvent): ListedEvent {
  const { agentId } = event.data;
  const servers = event.data.servers.map(({ server, tools }) => {
    const before = known?.[mcpKey(agentId, server)]?.tools ?? null;
    return { server, tools: tools ?? (before === null ? null : [...before]) };
  });
  return { ...event, data: { ...event.data, servers } };
}

/** What the session knows of its servers after an event. Total. */
export function evolveServers(known: KnownMcpServers | undefined, event: SessionEvent): KnownMcpServers | undefined {
  if (event.type === 'mcp.state') {
    const { agentId, server, state, reason = null } = event.data;
    return put(known, mcpKey(agentId, server), { state, reason });
  }
  if (event.type !== 'mcp.tools.listed') return known;
  let next = known;
  for (const { server, tools } of event.data.servers) {
    if (tools !== null) next = put(next, mcpKey(event.data.agentId, server), { tools });
  }
  return next;
}

function put(known: KnownMcpServers = {}, key: string, change: Partial<KnownMcpServer>): KnownMcpServers {
  const { [key]: before = { state: null, reason: null, tools: null }, ...others } = known;
  const kept = Object.entries(others).slice(-(SERVERS_KEPT - 1));
  return { ...Object.fromEntries(kept), [key]: { ...before, ...change } };
}
