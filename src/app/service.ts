import type { Config } from './config.ts';

/** The name that a Host gives itself, in its answers and its traces. */
export const SERVICE = 'agent-runtime-host';

const FEATURES = ['runtime-tenants', 'admin-status', 'studio-principal', 'subject-headers', 'previews'];

/** What a client may count on beyond the protocol. */
export function featuresOf({ fixtureModel }: Config): readonly string[] {
  return [...FEATURES, ...(fixtureModel ? ['tenant-fixture-model'] : [])];
}
