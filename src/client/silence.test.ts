import { expect, test } from 'vitest';
import { createClient } from './client.ts';

const frame = (index: number): string =>
  `id: ${index}\nevent: message.assistant\ndata: ${JSON.stringify({ cursor: `${index}`, payload: { text: 'x' } })}\n\n`;

/** A stream that says this and then nothing, as a node does whose machine has stopped: its connection stays open. */
function fallsSilent(text: string, signal: AbortSignal | null | undefined): Response {
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => {
      controller.enqueue(new TextEncoder().encode(text));
      signal?.addEventListener('abort', () => controller.error(signal.reason), { once: true });
    },
  });
  return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
}

async function neverAnswers(signal: AbortSignal | null | undefined): Promise<Response> {
  return await new Promise((_, reject) => {
    signal?.addEventListener('abort', () => reject(new Error('aborted', { cause: signal.reason })), { once: true });
  });
}

test('a reader leaves a node that falls silent, and reads on at the next, wherever the silence came', async () => {
  const asked: string[] = [];
  const client = createClient({
    ...{ url: ['http://one', 'http://two', 'http://three'], key: 'k', tenant: 't', silenceMs: 50 },
    wait: async () => await Promise.resolve(),
    fetch: async (url, { signal }) => {
      const { host, searchParams } = new URL(url);
      const next = Number(searchParams.get('cursor') ?? 0) + 1;
      asked.push(host);
      if (host === 'one')
        return fallsSilent(`event: ready\ndata: {}\n\n${frame(next)}${frame(next + 1).slice(0, 20)}`, signal);
      if (host === 'two') return await neverAnswers(signal);
      // Frames that this version does not know are left out.
      return fallsSilent(`event: news\ndata: {"a":1}\n\nevent: preview\ndata: {}\n\n${frame(next)}`, signal);
    },
  });
  const seen: string[] = [];
  for await (const { cursor } of client.session('s').events()) if (seen.push(cursor) === 5) break;
  expect(seen).toEqual(['1', '2', '3', '4', '5']);
  expect(asked).toEqual(['one', 'two', 'three', 'one', 'two', 'three', 'one']);
});
