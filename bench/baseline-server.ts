import { rename, writeFile } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { fastify } from 'fastify';
import { connectNats } from '#src/streams/jetstream/connection.ts';
import { Publisher } from '#src/streams/jetstream/publisher.ts';

/**
 * What the Host is held against: a Fastify handler that does nothing but publish the bytes that it was sent, with the
 * same durability (a message id, an expected sequence, an acknowledgement after the disk) over the same publisher, which
 * is cheaper than the client's own: the ratio shows what the Host adds, not what the client costs. For the rows with
 * readers it passes on what the server republishes.
 */
const { appends, live } = await connectNats(process.env['NATS_URL'] ?? '', 'baseline');
const publisher = new Publisher(appends);
const newest = new Map<string, number>();
const readers = new Map<string, Set<ServerResponse>>();
let count = 0;

async function append(id: string, bytes: Uint8Array): Promise<number> {
  const subject = `bare.0.bench.session.${id}`;
  const options = { msgId: `${subject}:${count++}`, expected: newest.get(id) ?? 0, timeoutMs: 1_000 };
  const seq = await publisher.publish(subject, bytes, options);
  newest.set(id, seq);
  return seq;
}

live.subscribe('barelive.>', {
  callback: (_, message) => {
    const id = message.subject.slice(message.subject.lastIndexOf('.') + 1);
    const to = readers.get(id);
    if (to === undefined) return;
    const text = `id: ${message.headers?.get('Nats-Sequence') ?? ''}\nevent: commit\ndata: ${message.string()}\n\n`;
    for (const reader of to) reader.write(text);
  },
});

const app = fastify();
app.removeAllContentTypeParsers();
app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_, body, done) => done(null, body));

app.post<{ Params: { id: string }; Body: Buffer }>('/append/:id', async ({ params, body }, reply) => {
  const seq = await append(params.id, body);
  return await reply.code(202).send({ status: 'accepted', cursor: String(seq) });
});

/** One append after the other: the body holds the commits of a turn, a line each. */
app.post<{ Params: { id: string }; Body: Buffer }>('/turn/:id', async ({ params, body }, reply) => {
  let seq = 0;
  for (let from = 0; from < body.length;) {
    const end = body.indexOf(10, from);
    const to = end < 0 ? body.length : end;
    seq = await append(params.id, body.subarray(from, to));
    from = to + 1;
  }
  return await reply.code(202).send({ status: 'accepted', cursor: String(seq) });
});

app.get<{ Params: { id: string } }>('/events/:id', (request, reply) => {
  reply.hijack();
  const { raw } = reply;
  raw.writeHead(200, { 'content-type': 'text/event-stream' });
  raw.write('event: ready\ndata: {}\n\n');
  const members = readers.get(request.params.id) ?? new Set();
  readers.set(request.params.id, members.add(raw));
  raw.on('close', () => members.delete(raw));
});

await app.listen({ host: '127.0.0.1', port: 0 });
const [bound] = app.addresses();
const file = process.env['LISTEN_FILE'] ?? '';
await writeFile(`${file}.new`, `127.0.0.1:${typeof bound === 'object' ? bound.port : 0}\n`);
await rename(`${file}.new`, file);
