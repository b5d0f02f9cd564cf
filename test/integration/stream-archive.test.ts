import { randomBytes } from 'node:crypto';
import { jetstream, jetstreamManager } from '@nats-io/jetstream';
import type { JetStreamManager, StreamConfig } from '@nats-io/jetstream';
import { connect } from '@nats-io/transport-node';
import type { NatsConnection } from '@nats-io/transport-node';
import { expect, test } from 'vitest';
import { StreamArchive } from '#src/streams/jetstream/stream-archive.ts';
import type { StreamCopy } from '#src/streams/jetstream/stream-archive.ts';
import { TestNats } from '../support/nats.ts';
import { overriding } from '../support/overriding.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/wait-until.ts';

const STREAMS = ['EVT_0', 'EVT_1'];

async function connected(nats: TestNats, url = nats.url): Promise<NatsConnection> {
  const { hostname, port, username, password } = new URL(url);
  return await connect({ servers: `${hostname}:${port}`, user: username, pass: password });
}

/** Messages that each follow from the one before, in turn in the one stream and the other, until it is stopped. */
class Chain {
  acknowledged = 0;
  readonly #connection: NatsConnection;
  #stopped = false;
  #running: Promise<void> = Promise.resolve();

  constructor(connection: NatsConnection) {
    this.#connection = connection;
  }

  start(): void {
    this.#running = this.#write();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#running;
  }

  async #write(): Promise<void> {
    const js = jetstream(this.#connection);
    while (!this.#stopped) {
      const link = this.acknowledged + 1;
      await js.publish(`evt.${link % 2}.link`, String(link));
      this.acknowledged = link;
    }
  }
}

async function collected({ config, state, chunks }: StreamCopy): Promise<StreamCopy> {
  const all: Uint8Array[] = [];
  for await (const chunk of chunks) all.push(chunk.slice());
  return {
    config,
    state,
    chunks: (async function* () {
      for (const chunk of all) yield await Promise.resolve(chunk);
    })(),
  };
}

/** Up to the last position both streams are one, behind it there is nothing. Returns the links of the restored one. */
async function compared(
  name: string,
  { manager, there, last }: { manager: JetStreamManager; there: JetStreamManager; last: number },
): Promise<number[]> {
  const links: number[] = [];
  const end = (await there.streams.info(name)).state.last_seq;
  for (let seq = 1; seq <= end; seq++) {
    const was = seq > last ? null : await manager.streams.getMessage(name, { seq });
    const is = await there.streams.getMessage(name, { seq });
    expect({ seq, text: is?.string() }).toEqual({ seq, text: was?.string() });
    if (is?.subject.endsWith('.link') === true) links.push(Number(is.string()));
  }
  return links;
}

test('streams that are copied while they are written are one instant, with their sequences and gaps', async () => {
  await using from = await TestNats.start();
  await using to = await TestNats.start();
  const source = await connected(from);
  const target = await connected(to);
  const manager = await jetstreamManager(source);
  for (const [shard, name] of STREAMS.entries()) {
    const closed: Partial<StreamConfig> & { name: string } = { name, subjects: [`evt.${shard}.>`], deny_delete: true };
    await manager.streams.add(closed);
  }
  // Something to copy, with holes in it.
  for (let n = 0; n < 100; n++)
    await jetstream(source).publish(n % 2 === 0 ? 'evt.0.gone' : 'evt.0.kept', Buffer.alloc(10_000, n));
  await manager.streams.purge('EVT_0', { filter: 'evt.0.gone', keep: 1 });
  const chain = new Chain(source);
  chain.start();
  await until('the chain has begun', () => chain.acknowledged > 50);
  const before = chain.acknowledged;
  const archive = await StreamArchive.open(source);
  const cut = await archive.cut(STREAMS);
  const copies: StreamCopy[] = [];
  for (const name of STREAMS) {
    // The second copy begins when the chain has gone on.
    const seen = chain.acknowledged;
    await until('the chain goes on', () => chain.acknowledged > seen + 50);
    copies.push(await collected(await archive.copy(name)));
  }
  await chain.stop();

  const restored = await StreamArchive.open(target);
  const there = await jetstreamManager(target);
  for (const copy of copies) {
    const { name } = copy.config;
    const { last_seq } = await restored.restore(copy, { replicas: 1 });
    expect(last_seq, 'the copy goes beyond the instant').toBeGreaterThan(cut.get(name) ?? 0);
    await restored.trim(name, cut.get(name) ?? 0, last_seq);
    await restored.close(copy.config);
    expect((await there.streams.info(name)).config.deny_delete).toBe(true);
  }
  const links: number[] = [];
  for (const name of STREAMS) links.push(...(await compared(name, { manager, there, last: cut.get(name) ?? 0 })));
  links.sort((a, b) => a - b);
  expect(links, 'no link without the one before it').toEqual(links.map((_, at) => at + 1));
  expect(links.length, 'and none is missing that was acknowledged before').toBeGreaterThanOrEqual(before);
  await source.close();
  await target.close();
});

test('a restore goes to a server of a cluster that hears late where its parts are taken', async () => {
  await using from = await TestNats.start();
  await using to = await TestNats.start();
  const [source, target] = [await connected(from), await connected(to)];
  await (await jetstreamManager(source)).streams.add({ name: 'EVT_0', subjects: ['evt.0.>'] });
  for (let n = 0; n < 20; n++) await jetstream(source).publish('evt.0.kept', randomBytes(100_000));
  const copy = await collected(await (await StreamArchive.open(source)).copy('EVT_0'));
  let unheard = 0;
  const late = overriding<NatsConnection>(target, {
    request: async (subject, ...rest) => {
      const isPart = subject.startsWith('$JS.SNAPSHOT.RESTORE.');
      // The server's own answer where it knows of no subscription.
      return await target.request(isPart && ++unheard < 4 ? 'of.nobody' : subject, ...rest);
    },
  });
  const { last_seq } = await (await StreamArchive.open(late)).restore(copy, { replicas: 1 });
  expect([last_seq, unheard > 4]).toEqual([20, true]);
  await source.close();
  await target.close();
});

test('a copy whose connection is lost in the middle fails at once, whatever still arrives', async () => {
  await using nats = await TestNats.start();
  await using proxy = await TcpProxy.start(nats.port);
  const through = await connected(nats, nats.urlThrough(proxy.port));
  const manager = await jetstreamManager(through);
  await manager.streams.add({ name: 'EVT_0', subjects: ['evt.0.>'] });
  for (let n = 0; n < 60; n++) await jetstream(through).publish('evt.0.kept', randomBytes(100_000));
  const archive = await StreamArchive.open(through);
  const { chunks } = await archive.copy('EVT_0');
  let taken = 0;
  const copying = (async () => {
    for await (const _ of chunks) if (++taken === 2) proxy.cutAll();
  })();
  await expect(copying).rejects.toThrow('the connection was lost');
  await through.close();
});
