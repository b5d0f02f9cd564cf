import { describe, expect, test } from 'vitest';
import type { ModelRequest } from '#src/drivers/model/port.ts';
import { FILE_TOOL, bytesOf, filesOf, goldenFile, goldenOf, playCase, wireFile } from '../support/golden-wire.ts';
import { KEY, ModelCalls, TOOL } from '../support/model-calls.ts';
import { WIRES } from '../support/model-wire.ts';
import type { Wire } from '../support/model-wire.ts';

/*
 * What each provider is sent by its own package, and what is made of what it answers, against golden files:
 * `test/support/model-wire/README.md` says how they are written and rewritten.
 */

const ASKED = { role: 'user', text: 'Which pages are there?' } as const;
const SCHEMA = {
  type: 'object',
  properties: { pages: { type: 'integer' } },
  required: ['pages'],
  additionalProperties: false,
};
const THINKERS: Readonly<Partial<Record<Wire, string>>> = {
  anthropic: 'claude-opus-4-6',
  google: 'gemini-3-pro-preview',
};

/** What is asked in each case, besides its answers. */
function caseOf(wire: Wire, name: string): Partial<ModelRequest> {
  const messages = [ASKED];
  switch (name) {
    case 'streamed':
      return { messages, settings: { temperature: 0.5, maxOutputTokens: 1_000 } };
    case 'structured':
      return { messages, outputSchema: SCHEMA };
    case 'thinking':
      return {
        ...{ messages, tools: [TOOL], settings: { reasoningEffort: 'low', showReasoning: true } },
        ...(THINKERS[wire] === undefined ? {} : { model: THINKERS[wire] }),
      };
    case 'tools':
    case 'truncated':
      return { messages, tools: [TOOL] };
    case 'files': {
      const files = ['notes.txt', 'dot.png', 'page.pdf', 'gone'].map((artifactId) => ({ artifactId, version: 1 }));
      const picture = { name: FILE_TOOL, description: 'Takes a picture.', inputSchema: { type: 'object' } };
      return { messages: [{ ...ASKED, files }], tools: [picture], file: goldenFile };
    }
    case 'files-stored': {
      const settings = { files: 'upload' } as const;
      const files = ['dot.png', 'scan.pdf'].map((artifactId) => ({ artifactId, version: 1 }));
      return { messages: [{ ...ASKED, files }], tools: [TOOL], file: goldenFile, settings };
    }
    default:
      return { messages };
  }
}

/** Every provider has these; what only some send is there besides. */
const EVERYWHERE = [
  'cached',
  'context-overflow',
  'cut',
  'files',
  'overloaded',
  'overloaded-midway',
  'rate-limited',
  'rate-limited-until',
  'refused',
  'streamed',
  'structured',
  'thinking',
  'tools',
  'truncated',
];

/** Where several steps are made of one conversation. */
const CONVERSATIONS = ['files', 'thinking', 'tools'];

const FILES = await Promise.all(WIRES.map(async (wire) => ({ wire, ...(await filesOf(wire)) })));

describe.each(FILES)('$wire', ({ wire, answers, golden }) => {
  const calls = new ModelCalls(wire);

  test('has an answer for every case, and no golden file without one', () => {
    expect(EVERYWHERE.filter((name) => !answers.includes(name))).toEqual([]);
    expect(golden.filter((name) => !answers.includes(name))).toEqual([]);
  });

  test.each(answers)('%s', async (name) => {
    const steps = (await playCase(calls, name, caseOf(wire, name))).map((step) => goldenOf(step, KEY));
    await expect(`${JSON.stringify(steps, null, 2)}\n`).toMatchFileSnapshot(wireFile(wire, `${name}.json`));
  });

  test.each(CONVERSATIONS)('each step of %s begins with the bytes of the step before', async (name) => {
    const sent = (await playCase(calls, name, caseOf(wire, name))).map((step) => bytesOf(step.sent));
    expect(sent.length).toBeGreaterThan(1);
    for (const [at, { conversation, rest }] of sent.slice(1).entries()) {
      const before = sent[at];
      expect(conversation.slice(0, before?.conversation.length)).toBe(before?.conversation);
      expect(conversation.length).toBeGreaterThan(before?.conversation.length ?? 0);
      expect(rest).toBe(before?.rest);
    }
  });
});
