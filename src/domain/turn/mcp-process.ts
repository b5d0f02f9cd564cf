import type { TurnContext } from './context.ts';
import { advance } from './process.ts';
import { running } from './running.ts';
import type { TurnDraft } from './running.ts';
import { settleListing } from './steps/mcp-listing.ts';
import type { ListedServer } from './steps/mcp-listing.ts';
import { askInCall, mcpCallUnderWay, settleMcpCall } from './steps/mcp-settling.ts';
import type { McpCallEnd, McpQuestion } from './steps/mcp-settling.ts';

/* Inputs of a turn about MCP servers. */

/** Records what the MCP servers of a thread have said about their tools, and what follows. */
export function settleMcpTools(
  draft: TurnDraft,
  { threadId, listed }: { readonly threadId: string; readonly listed: readonly ListedServer[] },
  context: TurnContext,
): void {
  const at = running(draft)?.at(threadId);
  if (at === undefined || at.isOver) return;
  settleListing(at, listed);
  advance(draft, context);
}

/** Records how an attempt at a call of an MCP server ended, and what follows. */
export function settleMcp(
  draft: TurnDraft,
  { effectId, end }: { readonly effectId: string; readonly end: McpCallEnd },
  context: TurnContext,
): void {
  const at = running(draft);
  const called = at === null ? null : mcpCallUnderWay(at, effectId);
  if (called === null) return;
  settleMcpCall(called, end);
  advance(draft, context);
}

/** An MCP server asks a person in the middle of a call, which stays open meanwhile. */
export function askInMcpCall(
  draft: TurnDraft,
  { effectId, question }: { readonly effectId: string; readonly question: McpQuestion },
  context: TurnContext,
): void {
  const at = running(draft);
  const called = at === null ? null : mcpCallUnderWay(at, effectId);
  if (called === null || called.call.interactionId !== null) return;
  askInCall(called, question);
  advance(draft, context);
}
