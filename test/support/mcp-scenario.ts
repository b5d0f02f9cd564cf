import { askInMcpCall, settleMcp, settleMcpTools } from '#src/domain/turn/mcp-process.ts';
import { advance } from '#src/domain/turn/process.ts';
import { decideTurn } from '#src/domain/session/decide.ts';
import type { McpServerManifest } from '#src/domain/agent/mcp-servers.ts';
import type { Manifest } from '#src/domain/agent/manifest.ts';
import type { OpenMcpCall } from '#src/domain/turn/mcp-calls.ts';
import type { McpTool } from '#src/domain/turn/mcp-events.ts';
import type { McpCallEnd } from '#src/domain/turn/steps/mcp-settling.ts';
import type { McpListed } from '#src/domain/turn/steps/mcp-listing.ts';
import { START_MS } from './given.ts';
import { Scenario } from './turn-scenario.ts';

export const DOCS: McpServerManifest = { name: 'docs', url: 'https://mcp.example/mcp' };

/** A tool of the server `docs`. */
export function mcpTool(tool: string, change: Partial<McpTool> = {}): McpTool {
  const target = { server: 'docs', tool, digest: `digest of ${tool}`, repeatable: false };
  return { name: `docs_${tool}`, ...target, readOnly: false, description: `Does ${tool}.`, inputSchema: {}, ...change };
}

export const listed = (...tools: McpTool[]): McpListed => ({ kind: 'tools', tools, omitted: null });

/** A session of an agent with MCP servers, whose worker tells it what they say. */
export class McpScenario extends Scenario {
  static of(servers: readonly McpServerManifest[], manifest: Partial<Manifest> = {}): McpScenario {
    return new McpScenario({ ...manifest, mcpServers: [...servers] });
  }

  /** What the servers of a thread say when they are asked for their tools. */
  list(servers: Readonly<Record<string, McpListed>>, threadId = 'root'): string[] {
    const answers = Object.entries(servers).map(([server, one]) => ({ server, listed: one }));
    return this.take(
      decideTurn(this.session, START_MS + this.ms, (draft) => {
        settleMcpTools(draft, { threadId, listed: answers }, this.#asWorker());
      }),
    );
  }

  get mcpCalls(): readonly OpenMcpCall[] {
    return Object.values(this.turn.threads).flatMap(({ mcp }) => mcp.calls);
  }

  /** An attempt ends; by default that of the only call there is. */
  end(end: McpCallEnd, effectId = this.mcpCalls[0]?.effectId ?? 'none'): string[] {
    return this.take(
      decideTurn(this.session, START_MS + this.ms, (draft) => {
        settleMcp(draft, { effectId, end }, this.#asWorker());
      }),
    );
  }

  /** The server asks in the middle of an attempt. */
  askIn(effectId: string): string[] {
    const question = { prompt: 'Which?', schema: { type: 'object' }, url: null };
    return this.take(
      decideTurn(this.session, START_MS + this.ms, (draft) => {
        askInMcpCall(draft, { effectId, question }, this.#asWorker());
      }),
    );
  }

  /** People sign in: somebody looks at the vaults, and finds what these interactions asked for. */
  signIn(...interactionIds: readonly string[]): string[] {
    return this.take(
      decideTurn(this.session, START_MS + this.ms, (draft) => {
        advance(draft, this.context({ signedIn: new Set(interactionIds) }));
      }),
    );
  }

  #asWorker() {
    return this.context({ workerId: this.session.turn?.claim?.workerId ?? null });
  }
}

/** Begins a turn whose model has called one tool of the server `docs`. */
export function calling(tool: McpTool, server: Partial<McpServerManifest> = {}): McpScenario {
  const life = McpScenario.of([{ ...DOCS, ...server }]);
  life.message();
  life.list({ docs: listed(tool) });
  life.answer('Searching.', [{ name: tool.name, input: { q: 'x' } }]);
  return life;
}
