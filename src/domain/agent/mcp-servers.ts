import { z } from 'zod';
import { text } from '../kernel/schemas.ts';

/* MCP servers of a manifest: their tools are the agent's, and the Host itself calls them. */

export const MCP_SERVERS_MAX = 16;
const TOOLS_NAMED_MAX = 128;
const HEADERS_MAX = 32;

/** Set by HTTP itself, by the protocol, or by the credential of a vault; a secret has no place in a manifest. */
const RESERVED_HEADERS =
  /^(authorization|proxy-.*|cookie|set-cookie|host|origin|content-.*|transfer-encoding|connection|accept|mcp-.*|last-event-id|te|trailer|upgrade|keep-alive|expect)$/i;

const headers = z
  .record(z.string().regex(/^[A-Za-z0-9!#$%&'*+.^_|~-]{1,64}$/, 'is not the name of a header'), headerValue())
  .refine((value) => Object.keys(value).length <= HEADERS_MAX, `at most ${HEADERS_MAX} headers`)
  .superRefine((value, context) => {
    const names = Object.keys(value);
    for (const name of names.filter((one) => RESERVED_HEADERS.test(one))) {
      const message = 'is set by the Host; a token belongs in a credential of a vault that the session names';
      context.addIssue({ code: 'custom', path: [name], message });
    }
    if (new Set(names.map((name) => name.toLowerCase())).size < names.length)
      context.addIssue({ code: 'custom', message: 'a header is named twice' });
  });

function headerValue() {
  return z.string().regex(/^[\u0020-\u007E]{0,2000}$/, 'must be at most 2000 visible ASCII characters');
}

const url = text(1, 2_000).superRefine((value, context) => {
  const parsed = URL.canParse(value) ? new URL(value) : null;
  const isHttp = parsed?.protocol === 'https:' || parsed?.protocol === 'http:';
  if (!isHttp || parsed.username !== '' || parsed.password !== '' || parsed.hash !== '')
    context.addIssue({ code: 'custom', message: 'must be an http or https address without credentials and fragment' });
});

export const mcpServer = z.strictObject({
  /** The first part of its tools' names. */
  name: z.string().regex(/^[A-Za-z0-9_-]{1,32}$/, "must be 1 to 32 letters, digits, '_' or '-'"),
  /** Where it speaks streamable HTTP. */
  url,
  headers: headers.optional(),
  /** The tools that the agent gets, by the server's own names; absent: all. */
  tools: z.array(text(1, 200)).max(TOOLS_NAMED_MAX).optional(),
  /** `writes`: of the tools that the server does not call read-only. */
  approval: z.enum(['never', 'always', 'writes']).optional(),
  /** False: a turn continues without the server when it is away. */
  required: z.boolean().optional(),
  /** Of one call. */
  timeoutSeconds: z.int().min(1).max(600).optional(),
});

export type McpServerManifest = z.infer<typeof mcpServer>;

export const mcpServers = z
  .array(mcpServer)
  .max(MCP_SERVERS_MAX)
  .refine((servers) => new Set(servers.map(({ name }) => name)).size === servers.length, 'a server is named twice');

/** Default of `timeoutSeconds`. */
export const MCP_TIMEOUT_SECONDS = 60;
