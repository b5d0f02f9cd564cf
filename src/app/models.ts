import { secretName } from '../commands/tenant/manage-model.ts';
import type { ModelSelection } from '../domain/agent/manifest.ts';
import { REMOTE_PROVIDERS } from '../drivers/model/port.ts';
import type {
  ModelConnection,
  ModelConnections,
  ModelDriver,
  ModelDrivers,
  RemoteProvider,
} from '../drivers/model/port.ts';
import type { CatalogModel } from '../http/routes/model.ts';
import type { SecretStore } from '../drivers/secrets/port.ts';
import type { StreamPatience } from '../drivers/model/watchdog.ts';
import type { Clock } from '../lib/clock.ts';
import type { EgressPolicy } from '../lib/egress.ts';
import type { Logger } from '../lib/logger.ts';
import { WeightedLru } from '../lib/lru.ts';
import type { Directory } from '../projections/directory/directory.ts';
import type { DirectoryTenant } from '../projections/directory/entries.ts';

/** What a seed with `fixtureModel` selects. */
const FIXTURE: ModelSelection = { provider: 'fixture', model: 'fixture' };
const KEYS_CACHED_MAX = 1_000;

/** How long providers are waited for, ms. */
export interface ModelPatience extends StreamPatience {
  /** From the request to the end of the answer. */
  readonly callMs: number;
}

export interface ModelsOptions {
  readonly directory: Directory;
  readonly secrets: SecretStore;
  /** Without a network, and free; null: this Host has none. */
  readonly fixture: ModelDriver | null;
  /** Which addresses of tenants' providers may be called. */
  readonly egress: EgressPolicy;
  readonly patience: ModelPatience;
  readonly clock: Clock;
  readonly logger: Logger;
}

export interface Models {
  readonly drivers: ModelDrivers;
  readonly close: () => Promise<void>;
}

/** The drivers of this Host, one for each provider. */
export function openModels(options: ModelsOptions): Models {
  const { directory, secrets, fixture, logger } = options;
  const known = connectionsOf(directory, secrets, logger);
  let loaded: ReturnType<typeof loadRemote> | undefined;
  let ready: Awaited<ReturnType<typeof loadRemote>> | undefined;
  const remote = REMOTE_PROVIDERS.map((provider): [string, ModelDriver] => {
    const own = (model: string, tenantId: string): number | undefined =>
      directory.tenant(tenantId)?.prices.find((price) => price.provider === provider && price.model === model)
        ?.contextWindow;
    const driver: ModelDriver = {
      // The catalogue's are known once the libraries are there: with the second call.
      contextWindow: (model, tenantId) =>
        own(model, tenantId) ?? ready?.driver(provider).contextWindow?.(model, tenantId) ?? null,
      call: async (request, signal, onDelta) => {
        loaded ??= loadRemote(known.connections, options);
        ready = await loaded;
        return await ready.driver(provider).call(request, signal, onDelta);
      },
    };
    return [provider, driver];
  });
  return {
    drivers: new Map([...remote, ...(fixture === null ? [] : [['fixture', fixture] as const])]),
    close: async () => {
      known.stop();
      await (await loaded)?.client.close();
    },
  };
}

/** The providers' libraries take a quarter of a second to load: a Host pays for them with its first call, not its start. */
async function loadRemote(connections: ModelConnections, { egress: policy, patience, clock }: ModelsOptions) {
  const [{ modelClient }, { remoteModel }, { Circuits }] = await Promise.all([
    import('../drivers/model/client.ts'),
    import('../drivers/model/provider.ts'),
    import('../drivers/model/circuit.ts'),
  ]);
  // Silence is the watchdog's to end, which knows what it means.
  const client = modelClient({ policy, silenceMs: patience.callMs });
  const parts = { client, connections, clock, patience };
  const circuits = new Circuits({ connections, clock, random: Math.random });
  const driver = (provider: RemoteProvider): ModelDriver => circuits.around(provider, remoteModel(provider, parts));
  return { client, driver };
}

/** The price catalogue is large, too. */
export async function modelCatalog(provider: string): Promise<readonly CatalogModel[]> {
  const { catalogueOf } = await import('../drivers/model/prices.ts');
  return catalogueOf(provider);
}

/**
 * Addresses are in the directory, which every node has at hand; keys are read from the secret store when they are first
 * used. Each saved key has its own id, so what is kept here under an id is never an older one.
 */
function connectionsOf(
  directory: Directory,
  secrets: SecretStore,
  logger: Logger,
): { readonly connections: ModelConnections; readonly stop: () => void } {
  const keys = new WeightedLru<string>(KEYS_CACHED_MAX);
  const read = async (tenantId: string, provider: string, secretId: string): Promise<ModelConnection['key']> => {
    const place = `${tenantId} ${provider} ${secretId}`;
    const cached = keys.get(place);
    if (cached !== undefined) return { kind: 'known', apiKey: cached };
    try {
      const apiKey = await secrets.get(tenantId, secretName(provider, secretId));
      // It has been replaced, and this node will soon learn by what.
      if (apiKey === null) return { kind: 'unreadable' };
      if (idsIn(directory.tenant(tenantId)).has(secretId)) keys.set(place, apiKey, 1);
      return { kind: 'known', apiKey };
    } catch (error) {
      logger.warn({ err: error, tenant: tenantId, provider }, 'the credential of a provider could not be read');
      return { kind: 'unreadable' };
    }
  };
  const stop = directory.onChange((tenantId) => {
    const current = idsIn(directory.tenant(tenantId));
    keys.deleteWhere((place) => {
      const [owner, , secretId = ''] = place.split(' ');
      return owner === tenantId && !current.has(secretId);
    });
  });
  const connections: ModelConnections = async (tenantId, provider) => {
    const tenant = directory.tenant(tenantId);
    const own = Object.entries(tenant?.providers ?? {}).find(([name]) => name === provider)?.[1];
    const { baseUrl = null, credential = null } = own ?? {};
    const key = credential === null ? ({ kind: 'none' } as const) : await read(tenantId, provider, credential.secretId);
    return { baseUrl, key, prices: tenant?.prices.filter((price) => price.provider === provider) ?? [] };
  };
  return { connections, stop };
}

function idsIn(tenant: DirectoryTenant | undefined): ReadonlySet<string> {
  return new Set(Object.values(tenant?.providers ?? {}).map(({ credential }) => credential?.secretId ?? ''));
}

/** The tenant's selection, for turns whose manifest names no model; null: there is none that this Host has. */
export function tenantModel(directory: Directory, fixtureIsOn: boolean): (tenantId: string) => ModelSelection | null {
  return (tenantId) => {
    const tenant = directory.tenant(tenantId);
    const selected = tenant?.model ?? (tenant?.fixtureModel === true ? FIXTURE : null);
    return selected?.provider === 'fixture' && !fixtureIsOn ? null : selected;
  };
}
