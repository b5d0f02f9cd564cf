import { randomUUID } from 'node:crypto';
import type { Client, SaveCredentialRequest, Vault, VaultCredential } from '../../client/client.ts';
import { misuse } from '../../lib/start-error.ts';
import { numberOf, readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { plainLine } from '../terminal.ts';
import { withClient } from './context.ts';
import type { Environment } from './context-file.ts';
import { first, print, table } from './output.ts';
import { readSecret } from './prompt.ts';
import { backOf, returnedTo } from './sign-in.ts';
import type { Back } from './sign-in.ts';

/** `agent-host vaults list`: newest first. */
export async function vaultsList(env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('vaults list'));
  const limit = numberOf('limit', values.limit ?? '20', { least: 1, whole: true });
  return await withClient(env, values.context, async (client) => {
    const rows = await first(allVaults(client, values.subject), limit);
    return print(rows, values.json, () =>
      table(
        ['VAULT', 'PERSON', 'NAME', 'CREATED'],
        rows.map((one) => [one.id, one.subject, one.name, one.createdAt]),
      ),
    );
  });
}

async function* allVaults(client: Client, subject: string | undefined): AsyncGenerator<Vault, void, undefined> {
  let cursor: string | undefined;
  do {
    const page = await client.request('GET /v1/vaults', { query: { subject, cursor } });
    yield* page.vaults;
    cursor = page.nextCursor ?? undefined;
  } while (cursor !== undefined);
}

/** Each command of a person is one, and is repeated under its key while the Host is away. */
function fresh(): { readonly requestId: string; readonly idempotencyKey: string } {
  return { requestId: randomUUID(), idempotencyKey: randomUUID() };
}

/** `agent-host vaults create <name>`. */
export async function vaultsCreate(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('vaults create'));
  const name = words[0] ?? misuse('name the vault: agent-host vaults create <name> --subject <person>');
  return await withClient(env, values.context, async (client) => {
    const vault = await client.request('POST /v1/vaults', { body: { ...fresh(), name, subject: values.subject } });
    return print([vault], values.json, () => `${vault.id}: ${plainLine(vault.name)}, of ${plainLine(vault.subject)}\n`);
  });
}

/** `agent-host vaults credentials <vault>`. */
export async function vaultsCredentials(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('vaults credentials'));
  const vaultId = words[0] ?? misuse('name the vault: agent-host vaults credentials <vault>');
  return await withClient(env, values.context, async (client) => {
    const { credentials } = await client.request('GET /v1/vaults/{vaultId}/credentials', { params: { vaultId } });
    return print(credentials, values.json, () =>
      table(
        ['CREDENTIAL', 'NAME', 'TYPE', 'STATE', 'ADDRESS', 'EXPIRES'],
        credentials.map((one) => [one.id, one.name, one.type, one.state, one.url, one.expiresAt ?? '']),
      ),
    );
  });
}

/** `agent-host vaults add <vault> <name> <url>`: its token comes from the terminal or standard input, never from the command line. */
export async function vaultsAdd(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('vaults add'));
  const [vaultId, name, url, ...more] = words;
  if (vaultId === undefined || name === undefined || url === undefined || more.length > 0)
    return misuse(
      'name vault, credential and address: agent-host vaults add <vault> <name> <url>; the token is asked for',
    );
  const isSignIn = values['sign-in'] === true;
  if (!isSignIn && values.scope !== undefined) misuse('--scope is for --sign-in');
  return await withClient(env, values.context, async (client) => {
    const auth: SaveCredentialRequest['auth'] = isSignIn
      ? { type: 'oauth', url, ...(values.scope === undefined ? {} : { scopes: values.scope }) }
      : { type: 'bearer', url, token: await readSecret(`Token for ${url}: `) };
    const made = await client.request('POST /v1/vaults/{vaultId}/credentials', {
      params: { vaultId },
      body: { ...fresh(), name, auth },
    });
    return print([made], values.json, () => {
      const next = made.state === 'needs_auth' ? `; next: agent-host vaults sign-in ${vaultId} ${made.id}` : '';
      return `${made.id}: ${made.state}${next}\n`;
    });
  });
}

/** `agent-host vaults sign-in <vault> <credential>`: prints the address for the browser and completes what comes back. */
export async function vaultsSignIn(env: Environment, args: readonly string[]): Promise<number> {
  const { values, words } = readArguments(args, optionsOf('vaults sign-in'));
  const [vaultId, credentialId] = words;
  if (vaultId === undefined || credentialId === undefined)
    return misuse('name vault and credential: agent-host vaults sign-in <vault> <credential>');
  return await withClient(env, values.context, async (client) => {
    const back = await backOf(values.redirect);
    try {
      const credential = await signIn(client, { vaultId, credentialId }, { back, asJson: values.json });
      return print([credential], values.json, () => `${credential.id}: ${credential.state}\n`);
    } finally {
      await back.close();
    }
  });
}

async function signIn(
  client: Client,
  params: { readonly vaultId: string; readonly credentialId: string },
  { back, asJson }: { readonly back: Back; readonly asJson: boolean | undefined },
): Promise<VaultCredential> {
  const { url, expiresAt } = await client.request('POST /v1/vaults/{vaultId}/credentials/{credentialId}/authorize', {
    params,
    body: { redirectUri: back.redirectUri },
  });
  const state = new URL(url).searchParams.get('state') ?? '';
  // The address alone is the output: it can be handed to what opens a browser.
  print([{ url, expiresAt }], asJson, () => `${plainLine(url)}\n`);
  process.stderr.write(`Open it in a browser before ${expiresAt}.\n`);
  const body = returnedTo(await back.address(state, Date.parse(expiresAt)));
  return await client.request('POST /v1/vaults/{vaultId}/credentials/{credentialId}/complete', { params, body });
}
