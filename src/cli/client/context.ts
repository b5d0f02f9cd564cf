import { createClient, Problem } from '../../client/client.ts';
import type { Client } from '../../client/client.ts';
import { EXIT, StartError } from '../../lib/start-error.ts';
import type { Context, Environment } from './context-file.ts';
import { readContext } from './context-file.ts';

/** Long enough for a node to be replaced, short for a person who started none. */
const RETRY_MS = 5_000;
const UNAUTHORIZED = 401;

export function clientOf({ url, tenant, key }: Pick<Context, 'url' | 'key'> & { readonly tenant?: string }): Client {
  return createClient({ url, tenant, key, retryMs: RETRY_MS });
}

/** Runs a command with the client of a context: the one that is named, else the current one. @throws StartError */
export async function withClient<T>(
  env: Environment,
  name: string | undefined,
  command: (client: Client, context: Context) => Promise<T>,
): Promise<T> {
  const context = await readContext(env, name);
  return await plainly(context.url, async () => await command(clientOf(context), context));
}

/** Runs a command; a refusal or an unreachable Host is one plain line. @throws StartError */
export async function plainly<T>(url: string, command: () => Promise<T>): Promise<T> {
  try {
    return await command();
  } catch (error) {
    if (error instanceof Problem) {
      const exitCode = error.status === UNAUTHORIZED ? EXIT.notSignedIn : EXIT.failed;
      throw new StartError(`${error.code}: ${error.message}`, { cause: error, code: error.code, exitCode });
    }
    if (isUnreachable(error)) {
      const options = { cause: error, code: 'unreachable', exitCode: EXIT.unreachable };
      throw new StartError(`no Host answers at ${url}; is it started?`, options);
    }
    throw error;
  }
}

/** What `fetch` throws without an answer, and what a request that took too long is aborted with. */
function isUnreachable(error: unknown): boolean {
  if (error instanceof DOMException) return error.name === 'TimeoutError';
  return error instanceof TypeError && error.message === 'fetch failed';
}
