import type { Manifest, ModelChoice, ModelSettings } from './manifest.ts';

/**
 * What a manifest has that nodes of 0.12 do not know: they run turns without it, and refuse to record it again, with a
 * session or a turn. `models`: other models in the place of the first, or newer settings.
 */
export type ManifestNeed = 'mcp' | 'sandboxes' | 'models';

const SETTINGS_OF_0_12 = [
  'temperature',
  'maxOutputTokens',
  'reasoningEffort',
] as const satisfies (keyof ModelSettings)[];

export function needsOf(manifest: Manifest | undefined): readonly ManifestNeed[] {
  if (manifest === undefined) return [];
  const { mcpServers, sandboxTools, sandbox, model } = manifest;
  return [
    ...(mcpServers === undefined ? [] : (['mcp'] as const)),
    ...(sandboxTools === undefined && sandbox === undefined ? [] : (['sandboxes'] as const)),
    ...needsOfModel(model),
  ];
}

export function needsOfModel(model: ModelChoice | null | undefined): readonly Extract<ManifestNeed, 'models'>[] {
  const settings = Object.entries(model?.settings ?? {}).filter(([, value]) => value !== undefined);
  const isKnown = settings.every(([name]) => SETTINGS_OF_0_12.some((known) => known === name));
  return model?.fallbacks === undefined && isKnown ? [] : ['models'];
}
