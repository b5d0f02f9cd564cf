import { z } from 'zod';
import { Declarations } from './declarations.ts';
import type { Exchange, Session } from './exchange.ts';
import { LIMITS } from './limits.ts';
import type { McpServer, McpTools } from './port.ts';

/** Each tool is checked by itself: one that is wrong does not take the others with it. */
const page = z.looseObject({ tools: z.array(z.unknown()), nextCursor: z.string().optional() });
const WHOLE_LIST = '(the rest of the list)';

/**
 * Reads a server's tools, page by page, as far as the limits allow.
 * @throws what the client throws
 */
export async function readTools(
  exchange: Exchange,
  { name, only }: McpServer,
  { session, timeoutMs, signal }: { session: Session; timeoutMs: number; signal: AbortSignal },
): Promise<{ readonly listing: McpTools; readonly weight: number }> {
  const found = new Declarations(name, only);
  const seen = new Set<string>();
  const deadline = performance.now() + timeoutMs;
  let cursor: string | undefined;
  for (let pages = 0; ; pages += 1) {
    if (pages === LIMITS.listPages) {
      found.refuse(WHOLE_LIST, `it has more than ${LIMITS.listPages} pages`);
      break;
    }
    const params = cursor === undefined ? {} : { cursor };
    const options = { timeout: Math.max(1, deadline - performance.now()), signal };
    const { tools, nextCursor } = await exchange.request(
      exchange.client.request({ method: 'tools/list', params }, page, options),
    );
    for (const tool of tools) await found.add(tool);
    if (nextCursor === undefined || nextCursor === '') break;
    if (seen.has(nextCursor)) {
      found.refuse(WHOLE_LIST, 'its pages repeat themselves');
      break;
    }
    seen.add(nextCursor);
    cursor = nextCursor;
  }
  return { listing: found.result(session.revision), weight: found.weight };
}
