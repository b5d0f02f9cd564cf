import { randomUUID } from 'node:crypto';
import type { Config } from '../../app/config.ts';
import { readPublished } from '../../embedded/data-dir.ts';
import { EXIT, StartError } from '../../lib/start-error.ts';
import { readArguments } from '../arguments.ts';
import { optionsOf } from '../catalog/callers.ts';
import { safeJson } from '../terminal.ts';
import { adminKeyFor } from './admin-key.ts';
import { clientOf, plainly } from './context.ts';
import { contextPath, programName, readContext, saveContext } from './context-file.ts';
import type { Environment } from './context-file.ts';

const AGENT = 'helper';
/** For the Host of a context that may be gone. */
const KNOWN_MS = 3_000;
const MANIFEST = {
  instructions: 'Be brief.',
  // Needs no provider: it plays a script, or echoes what it is told.
  model: { provider: 'fixture', model: 'any' },
} as const;

/**
 * `agent-host init`: a tenant on the Host of the data directory (or at `--url`, with AGENT_HOST_ADMIN_KEY), an agent for it, and
 * a file with its key for the commands that follow. Returns the exit code.
 */
export async function init(config: Config, env: Environment, args: readonly string[]): Promise<number> {
  const { values } = readArguments(args, optionsOf('init'));
  const url = values.url ?? (await ownUrl(config));
  const adminKey = await adminKeyFor(url, config, env);
  const name = values.context ?? 'default';
  await refuseToForget(env, name);
  const made = await plainly(url, async () => {
    const body = { name: values.name ?? 'Trial', requestId: randomUUID(), idempotencyKey: randomUUID() };
    const created = await clientOf({ url, key: adminKey }).request('POST /v1/admin/tenants', { body });
    const { tenant, applicationKey } = created;
    if (applicationKey === null) throw new StartError('the answer with the key of the tenant was lost; run init again');
    const context = { url, tenant: tenant.id, key: applicationKey, agent: AGENT };
    await clientOf(context).agents.save(AGENT, MANIFEST);
    return context;
  });
  const path = await saveContext(env, name, made);
  const { key: _key, ...shown } = made;
  if (values.json === true) process.stdout.write(`${safeJson({ name, ...shown, context: path })}\n`);
  else
    process.stdout.write(
      `Tenant ${made.tenant} with the agent ${AGENT}. Its key is in ${path}.\nNext: ${programName(env)} chat\n`,
    );
  return 0;
}

/** A key is shown once: one that still works is not overwritten. @throws StartError */
async function refuseToForget(env: Environment, name: string): Promise<void> {
  const known = await readContext(env, name).catch(() => null);
  if (known === null) return;
  const isAlive = await clientOf(known)
    .request('GET /v1/me', { timeoutMs: KNOWN_MS })
    .then(
      () => true,
      () => false,
    );
  if (!isAlive) return;
  const where = `${contextPath(env)} has a key that works, for ${known.tenant}, as context ${name}`;
  throw new StartError(`${where}; ${programName(env)} chat uses it, --context <name> makes another beside it`);
}

async function ownUrl({ dataDir }: Config): Promise<string> {
  const address = await readPublished(dataDir, 'listen');
  if (address === undefined)
    throw new StartError(`no Host runs on ${dataDir}; start it with npm start, or name one with --url`, {
      code: 'unreachable',
      exitCode: EXIT.unreachable,
    });
  return `http://${address}`;
}
