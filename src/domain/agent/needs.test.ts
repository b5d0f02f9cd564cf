import { expect, test } from 'vitest';
import { modelSettings } from './manifest.ts';
import type { Manifest } from './manifest.ts';
import { needsOf } from './needs.ts';

const model = { provider: 'fixture', model: 'any' } as const;

test.each<[string, Partial<Manifest>, readonly string[]]>([
  ['nothing in particular', { tools: [], agents: [], hooks: [] }, []],
  ['settings that 0.12 has', { model: { ...model, settings: { temperature: 1, reasoningEffort: 'low' } } }, []],
  ['a setting that it says nothing of', { model: { ...model, settings: { caching: undefined } } }, []],
  ['a newer setting', { model: { ...model, settings: { caching: 'off' } } }, ['models']],
  ['fallbacks', { model: { ...model, fallbacks: [] } }, ['models']],
  ['a list of servers', { mcpServers: [] }, ['mcp']],
  ['tools of a sandbox', { sandboxTools: true }, ['sandboxes']],
  ['a sandbox', { sandbox: { kind: 'virtual' } }, ['sandboxes']],
])('a manifest with %s needs what 0.12 does not know of it', (_, members, needs) => {
  expect(needsOf({ instructions: '', ...members })).toEqual(needs);
});

test('settings are of 0.12, or need a newer node', () => {
  const isOld = (name: string): boolean =>
    needsOf({ instructions: '', model: { ...model, settings: { [name]: 'x' } } }).length === 0;
  expect(Object.keys(modelSettings.shape).filter(isOld)).toEqual(['temperature', 'maxOutputTokens', 'reasoningEffort']);
});
