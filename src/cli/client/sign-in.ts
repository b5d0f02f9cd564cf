import { createServer } from 'node:http';
import type { ServerResponse } from 'node:http';
import { once } from 'node:events';
import { EXIT, StartError } from '../../lib/start-error.ts';
import { ask, isInteractive, readInput } from './prompt.ts';
import { untilInterrupted } from './files.ts';

const DONE = 'You are signed in, or have refused to: the terminal says which. This page can be closed.\n';

/** Where a browser returns after a sign-in. */
export interface Back {
  readonly redirectUri: string;
  /** The address that it returned to, with its query, which has the `state` of this sign-in. @throws StartError when it has not by then */
  readonly address: (state: string, untilMs: number) => Promise<URL>;
  readonly close: () => Promise<void>;
}

/** A listener of this process on loopback; or what a person copies, where the browser returns to another place. */
export async function backOf(redirect: string | undefined): Promise<Back> {
  if (redirect === undefined) return await listener();
  return {
    redirectUri: redirect,
    address: async (state) => {
      const text = isInteractive() ? await ask('Address that the browser returned to: ') : await readInput();
      if (!URL.canParse(text.trim())) throw new StartError('that is not an address');
      const url = new URL(text.trim());
      // A refusal may come without one.
      if (!isOf(url, state) && url.searchParams.has('code'))
        throw new StartError('that is the address of another sign-in; run this one again');
      return url;
    },
    close: async () => await Promise.resolve(),
  };
}

async function listener(): Promise<Back> {
  const returned = Promise.withResolvers<URL>();
  let wanted: string | null = null;
  const server = createServer((request, response) => {
    // Any page may send anything here, also what is no address.
    const url = URL.parse(`http://127.0.0.1${request.url ?? '/'}`);
    if (url === null || request.method !== 'GET' || url.pathname !== PATH) return answer(response, 404, 'Not here.\n');
    // Nor does it end this sign-in: only who asked for it, and the server, know its state.
    if (wanted === null || !isOf(url, wanted)) return answer(response, 400, 'Not of this sign-in.\n');
    answer(response, 200, DONE);
    returned.resolve(url);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const at = server.address();
  const port = typeof at === 'object' ? at?.port : undefined;
  return {
    redirectUri: `http://127.0.0.1:${port}${PATH}`,
    address: async (state, untilMs) => {
      wanted = state;
      return await waitFor(returned.promise, untilMs);
    },
    close: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

function isOf({ searchParams }: URL, state: string): boolean {
  return searchParams.get('state') === state;
}

const PATH = '/signed-in';

function answer(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', connection: 'close' }).end(text);
}

async function waitFor(returned: Promise<URL>, untilMs: number): Promise<URL> {
  let address: URL | undefined;
  let timer: NodeJS.Timeout | undefined;
  const code = await untilInterrupted(async (signal) => {
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(resolve, Math.max(0, untilMs - Date.now()), undefined);
      signal.addEventListener('abort', () => resolve(undefined), { once: true });
    });
    address = await Promise.race([returned, late]);
    signal.throwIfAborted();
  }).finally(() => clearTimeout(timer));
  if (address !== undefined) return address;
  if (code === EXIT.interrupted) throw new StartError('interrupted', { exitCode: code, code: 'interrupted' });
  throw new StartError('the browser did not return in time; run the sign-in again');
}

/** What the browser brought back. @throws StartError when the person or the server refused */
export function returnedTo({ searchParams }: URL): {
  readonly code: string;
  readonly state: string;
  readonly iss?: string;
} {
  const [code, state, iss] = ['code', 'state', 'iss'].map((name) => searchParams.get(name));
  if (code == null || state == null) {
    const why = searchParams.get('error') ?? 'code or state is missing';
    throw new StartError(`the sign-in was not completed: ${why}`, { code: 'sign_in_refused' });
  }
  return iss == null ? { code, state } : { code, state, iss };
}
