import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { ArtifactDeps } from '#src/commands/artifact/deps.ts';
import { mcpResult } from '#src/engine/mcp-results.ts';
import type { McpContent } from '#src/drivers/mcp/port.ts';
import { systemClock } from '#src/lib/clock.ts';
import { UnavailableError } from '#src/lib/unavailable.ts';
import { MemoryStreams } from '#src/streams/memory/streams.ts';
import { artifactDepsOn } from '../support/artifact-deps.ts';
import { newRef } from '../support/commits.ts';
import { newBucket, openMemoryLog } from '../support/memory-log.ts';
import { overriding } from '../support/overriding.ts';

const image = (n: number): McpContent => ({ type: 'media', contentType: 'image/png', bytes: Buffer.from([n]) });

test('a result is stored once, file by file, however often the object store is away in the middle', async () => {
  await using directory = await mkdtempDisposable(join(tmpdir(), 'agent-host-mcp-results-'));
  using log = await openMemoryLog(new MemoryStreams(1, systemClock), newBucket());
  const parts = await artifactDepsOn(log.store, directory.path);
  const attempts: string[] = [];
  const put: ArtifactDeps['objects']['put'] = async (...given) => {
    attempts.push(given[0].owner);
    if (attempts.length % 2 === 0) throw new UnavailableError('objects', 'it is away');
    return await parts.objects.put(...given);
  };
  const ref = newRef();
  const result = await mcpResult(
    { ...parts, objects: overriding(parts.objects, { put }) },
    {
      ref,
      session: { subject: null, agentId: 'agent', createdPosition: 1 },
      ...{ tool: 'draw', effectId: 'ef_1', actor: 'worker:test', signal: new AbortController().signal },
      whileAway: async (work) => {
        for (;;) {
          try {
            return await work();
          } catch (error) {
            if (!(error instanceof UnavailableError)) throw error;
          }
        }
      },
    },
    { kind: 'result', isError: false, structured: null, content: [image(1), image(2), image(3)] },
  );
  expect(attempts).toHaveLength(5);
  const stored: string[] = [];
  for await (const page of parts.objects.list()) stored.push(...page.map(({ owner }) => owner));
  expect(result.files?.map(({ artifactId }) => artifactId).toSorted()).toEqual(stored.toSorted());
  expect(stored).toHaveLength(3);
});
