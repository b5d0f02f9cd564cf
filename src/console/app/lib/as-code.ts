import { pathOf } from '../../../client/connection.ts';

/** A call of the API as the page makes it. */
export interface ApiCall {
  /** Method and path, as the client's `request` takes it. */
  readonly operation: string;
  readonly params?: Readonly<Record<string, string>> | undefined;
  readonly query?: Readonly<Record<string, string | number | undefined>> | undefined;
  readonly body?: unknown;
}

/** What is of the whole Host takes its key, and is of no tenant. */
const OF_HOST = '/v1/admin/';

/** The call for a shell; the key and the address are variables, so that it can be shared. */
export function asCurl({ operation, params = {}, query = {}, body }: ApiCall, tenant: string): string {
  const [method = 'GET', template = ''] = operation.split(' ');
  const isOfHost = template.startsWith(OF_HOST);
  const lines = [
    `curl${method === 'GET' ? '' : ` -X ${method}`} "$AGENT_HOST_URL"${quoted(pathOf(template, params, query))}`,
    `-H "authorization: Bearer $${isOfHost ? 'AGENT_HOST_ADMIN_KEY' : 'AGENT_HOST_KEY'}"`,
    `-H 'svc-protocol: 8'${isOfHost ? '' : ` -H ${quoted(`svc-tenant: ${tenant}`)}`}`,
  ];
  if (body !== undefined) lines.push(`-H 'content-type: application/json' -d ${quoted(JSON.stringify(body))}`);
  return lines.join(' \\\n  ');
}

/** The call with the client for TypeScript and JavaScript. */
export function asClientCode({ operation, params, query, body }: ApiCall, tenant: string): string {
  const input = Object.entries({ params, query, body })
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `  ${name}: ${JSON.stringify(value, null, 2).replaceAll('\n', '\n  ')},`);
  const credential = operation.includes(` ${OF_HOST}`)
    ? 'key: process.env.AGENT_HOST_ADMIN_KEY'
    : `key: process.env.AGENT_HOST_KEY, tenant: '${tenant}'`;
  return [
    `import { createClient } from 'agent-runtime-host/client';`,
    '',
    `const client = createClient({ url: process.env.AGENT_HOST_URL, ${credential} });`,
    `const answer = await client.request('${operation}', {${input.length === 0 ? '' : `\n${input.join('\n')}\n`}});`,
  ].join('\n');
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
