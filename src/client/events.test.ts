import { expect, test } from 'vitest';
import { createClient } from './client.ts';

const DAY_MS = 24 * 3_600_000;
const RECORDS = 25_000;
const CUTS_MIN = 10_000;

/** The same run for the same seed. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x6d2b79f5) | 0;
    return ((state ^ (state >>> 13)) >>> 0) / 2 ** 32;
  };
}

/** Nodes of a Host under one history that grows over a simulated day; nothing of them stays whole for long. */
class World {
  nowMs = 0;
  cuts = 0;
  changes = 0;
  readonly asked: string[] = [];
  readonly #chance: () => number;
  #lastNode = '';

  constructor(seed: number) {
    this.#chance = random(seed);
  }

  readonly wait = async (ms: number): Promise<void> => {
    this.nowMs += ms;
    await Promise.resolve();
  };

  readonly fetch = async (url: string): Promise<Response> => {
    await Promise.resolve();
    const { host, searchParams } = new URL(url);
    if (host !== this.#lastNode) this.changes++;
    this.#lastNode = host;
    const cursor = searchParams.get('cursor');
    const chance = this.#chance();
    if (chance < 0.05) {
      this.cuts++;
      throw new TypeError('fetch failed');
    }
    if (chance < 0.08) {
      this.cuts++;
      return Response.json({ status: 'rejected', code: 'unavailable', message: 'later' }, { status: 503 });
    }
    return new Response(this.#stream(cursor === null ? -1 : Number(cursor)), {
      headers: { 'content-type': 'text/event-stream' },
    });
  };

  /** Of a record: when it is written. */
  #timeOf(index: number): number {
    return (index + 1) * (DAY_MS / RECORDS);
  }

  #frame(index: number): string {
    const record = { cursor: String(index), type: 'message.assistant', payload: { text: `Grüße № ${index} 🎈` } };
    return `id: ${index}\nevent: message.assistant\ndata: ${JSON.stringify(record)}\n\n`;
  }

  #stream(after: number): ReadableStream<Uint8Array> {
    // Something between the Host and its reader may send again what it has sent.
    let next = this.#chance() < 0.02 ? Math.max(0, after - 2) : after + 1;
    let bytes = new TextEncoder().encode('event: ready\ndata: {}\n\n: keepalive\n\n');
    return new ReadableStream({
      pull: (controller) => {
        const chance = this.#chance();
        if (chance < 0.35) {
          this.cuts++;
          // Cut in the middle of whatever is under way, or ended cleanly.
          if (chance < 0.2) controller.enqueue(bytes.slice(0, Math.floor(this.#chance() * bytes.length)));
          if (chance < 0.25) controller.error(new TypeError('terminated'));
          else controller.close();
          return;
        }
        // As the network cuts it: in the middle of a character, too.
        const size = Math.max(1, Math.floor(this.#chance() * bytes.length * 2));
        controller.enqueue(bytes.slice(0, size));
        bytes = bytes.slice(size);
        if (bytes.length > 0) return;
        if (next === RECORDS) {
          bytes = new TextEncoder().encode(': keepalive\n\n');
          return;
        }
        this.nowMs = Math.max(this.nowMs, this.#timeOf(next));
        let text = '';
        while (next < RECORDS && this.#timeOf(next) <= this.nowMs) text += this.#frame(next++);
        bytes = new TextEncoder().encode(text);
      },
    });
  }
}

test('a reader of a day sees every record once and in order, over thousands of cuts, ends and other nodes', async () => {
  const seed = Number(process.env['SEED'] ?? Math.floor(Math.random() * 2 ** 31));
  process.stdout.write(`a day of a tail: SEED=${seed}\n`);
  const world = new World(seed);
  const urls = ['http://one', 'http://two', 'http://three'];
  const { fetch, wait } = world;
  const client = createClient({ url: urls, key: 'k', tenant: 't', fetch, wait });
  let count = 0;
  for await (const { cursor } of client.session('s').events()) {
    if (cursor !== String(count)) break;
    count++;
    if (count === RECORDS) break;
  }
  expect(count, 'records, each the one after the last').toBe(RECORDS);
  expect(world.cuts).toBeGreaterThan(CUTS_MIN);
  expect(world.changes).toBeGreaterThan(CUTS_MIN / 2);
  expect(world.nowMs).toBeGreaterThanOrEqual(DAY_MS);
}, 120_000);
